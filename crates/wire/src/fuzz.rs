//! Bodies of the fuzz targets; the corpus replay test runs them too.
//! In: any bytes. Out: nothing; a broken promise panics.
//! Never: part of the data path.
