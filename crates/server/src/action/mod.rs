//! Actions: each turns a request into a response. One file or folder for each action.
//! In: requests from carriers. Out: responses to carriers. Never: asks which protocol the client speaks.

pub(crate) mod proxy;
pub(crate) mod synthetic;
