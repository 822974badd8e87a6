//! All readings of an ambiguous path at once: which of them differ, and which parts of the path need no tokens.
//! In: the tokens of a path, one by one. Out: the readings that differ, the parts that can be left out.
//! Never: looks up the route of a reading.

use super::{Cuts, READINGS, SEMICOLONS};

/// The state of all readings of an ambiguous path after the tokens so far. Each reading is one bit of a set. The
/// state shows which readings differ, and which parts of the path need no tokens.
///
/// A reading is complete after `run` slashes, because later ones cannot affect whether a pattern matches. A part
/// that changes no incomplete reading gets no tokens. Every other part adds text or a slash to an incomplete reading,
/// so that the number of tokens depends only on the patterns, not on the path.
pub(super) struct Followed {
    /// The number of slashes after which a reading is complete.
    pub(super) run: usize,
    /// The readings that are not complete.
    pub(super) open: ReadingSet,
    /// The number of slashes of each reading.
    pub(super) slashes: [usize; READINGS.len()],
    /// The readings that strip the parameters in which the last token is.
    pub(super) cutting: ReadingSet,
    /// The readings that end with a slash.
    pub(super) empty: ReadingSet,
    /// The readings that have merged slashes.
    pub(super) merged: ReadingSet,
    /// The kinds of tokens that make some readings differ (`PLAIN_SEMICOLON` and the constants after it).
    pub(super) differences: u8,
    /// The tokens since the last plain slash.
    pub(super) segment: Part,
    /// The tokens since the last slash of any kind.
    pub(super) part: Part,
    /// The readings in whose parameters the part began.
    pub(super) part_began_in: ReadingSet,
    /// The kinds of semicolons in the part.
    pub(super) semicolons: u8,
}

/// A part of the tokens that begins with a slash.
pub(super) struct Part {
    /// Its first token.
    pub(super) start: usize,
    /// The open readings to which it has added something.
    pub(super) changed: ReadingSet,
}

// What makes some readings differ.
/// A plain semicolon.
pub(super) const PLAIN_SEMICOLON: u8 = 1;
/// An encoded delimiter, or a backslash.
pub(super) const ENCODED: u8 = 2;
/// As `ENCODED`, outside of the parameters of a plain semicolon.
pub(super) const ENCODED_OUTSIDE: u8 = 4;
/// An encoded semicolon outside of the parameters of a plain semicolon.
pub(super) const ENCODED_SEMICOLON_OUTSIDE: u8 = 8;
/// An encoded slash, or a backslash.
pub(super) const LENIENT_SLASH: u8 = 16;
/// As `LENIENT_SLASH`, in the parameters of a plain semicolon.
pub(super) const LENIENT_SLASH_INSIDE: u8 = 32;

impl Followed {
    /// The readings of unambiguous tokens that have this number of `slashes`. Their last segment begins at `start`.
    #[inline(always)]
    pub(super) fn new(start: usize, slashes: usize, run: usize, ends_with_slash: bool) -> Self {
        Self {
            run,
            open: if slashes < run { ALL } else { 0 },
            slashes: [slashes; READINGS.len()],
            cutting: 0,
            empty: if ends_with_slash { ALL } else { 0 },
            merged: 0,
            differences: 0,
            segment: Part { start, changed: ALL },
            part: Part { start, changed: ALL },
            part_began_in: 0,
            semicolons: 0,
        }
    }

    /// Whether a segment that consists of parameters of a plain semicolon, without encodings, changes no open
    /// reading after a plain slash.
    #[inline(always)]
    pub(super) fn drops_parameters(&self) -> bool {
        let cutting = CUTTING_PLAIN | CUTTING_DECODED | CUTTING_LAST;
        self.open & !(cutting & MERGING & self.empty) == 0
    }

    /// Adds text after the first `length` tokens to those of `readings` that do not strip it. Returns the readings
    /// that change.
    #[inline(always)]
    pub(super) fn add_text(&mut self, readings: ReadingSet, length: usize) -> ReadingSet {
        let readings = readings & !self.cutting;
        self.empty &= !readings;
        // More text cannot affect a match in a reading whose segment is this long already.
        let is_short = length.saturating_sub(self.segment.start) <= self.run;
        let changed = readings & self.open & if is_short { ALL } else { DECODING };
        self.segment.changed |= changed;
        self.part.changed |= changed;
        changed
    }

    /// Adds a semicolon, the first of its kind in the part.
    #[inline(always)]
    pub(super) fn add_semicolon(&mut self, kind: u8, length: usize) {
        let (cutting, difference) = match kind {
            SEMICOLONS => (CUTTING_PLAIN | CUTTING_DECODED | CUTTING_LAST, PLAIN_SEMICOLON),
            _ if self.cutting & CUTTING_PLAIN != 0 => (CUTTING_DECODED | CUTTING_LAST, ENCODED),
            _ => (
                CUTTING_DECODED | CUTTING_LAST,
                ENCODED | ENCODED_OUTSIDE | ENCODED_SEMICOLON_OUTSIDE,
            ),
        };
        self.note(difference);
        self.add_text(!cutting & ALL, length);
        self.cutting |= cutting;
        self.semicolons |= kind;
    }

    /// Adds a plain slash after the first `length` tokens. Returns how many of these tokens are needed.
    #[inline(always)]
    pub(super) fn end_segment(&mut self, length: usize) -> usize {
        let length = match (self.segment.changed, self.part.changed) {
            (0, _) => self.segment.start,
            (_, 0) => self.part.start,
            _ => length,
        };
        self.cutting = 0;
        let changed = self.add_slash(ALL);
        self.segment = Part { start: length, changed };
        self.begin_part(length, changed);
        length
    }

    /// Adds a character that some servers take for a slash after the first `length` tokens. Returns how many of
    /// these tokens are needed.
    #[inline(always)]
    pub(super) fn end_part(&mut self, length: usize) -> usize {
        let is_inside = self.cutting & CUTTING_PLAIN != 0;
        // A plain slash ends all parameters. Parameters that only a plain slash ends continue in the next part.
        let is_needed = self.part.changed != 0
            || self.part.start == self.segment.start
            || self.cutting & !CUTTING_LAST != self.part_began_in;
        let length = if is_needed { length } else { self.part.start };
        self.note(ENCODED | LENIENT_SLASH);
        self.note(if is_inside { LENIENT_SLASH_INSIDE } else { ENCODED_OUTSIDE });
        self.cutting &= !CUTTING_LAST;
        let with_slash = self.add_slash(DECODING & !self.cutting);
        let changed = with_slash | self.add_text(ALL & !DECODING, length);
        self.segment.changed |= changed;
        self.begin_part(length, changed);
        length
    }

    #[inline(always)]
    pub(super) fn begin_part(&mut self, start: usize, changed: ReadingSet) {
        self.part = Part { start, changed };
        self.part_began_in = self.cutting & !CUTTING_LAST;
        self.semicolons = 0;
    }

    /// Adds a slash to `readings`. Returns the readings that change.
    #[inline(always)]
    pub(super) fn add_slash(&mut self, readings: ReadingSet) -> ReadingSet {
        let merged = readings & MERGING & self.empty;
        self.merged |= merged & self.open;
        self.empty |= readings;
        let changed = readings & !merged & self.open;
        if changed != 0 {
            self.open &= !count_slashes(changed, &mut self.slashes, self.run);
        }
        changed
    }

    /// Notes something that makes readings differ, unless it cannot affect any match.
    #[inline(always)]
    pub(super) fn note(&mut self, difference: u8) {
        if self.open != 0 {
            self.differences |= difference;
        }
    }

    /// The readings that may differ from all simpler ones.
    pub(super) fn distinct_readings(&self) -> ReadingSet {
        let has = |differences: u8| self.differences & differences == differences;
        let lenient_parameters = has(ENCODED_SEMICOLON_OUTSIDE) || has(LENIENT_SLASH_INSIDE);
        let conditions = [
            true,
            has(ENCODED),
            has(PLAIN_SEMICOLON),
            has(PLAIN_SEMICOLON | ENCODED_OUTSIDE),
            has(ENCODED_SEMICOLON_OUTSIDE),
            has(LENIENT_SLASH) && lenient_parameters,
        ];
        let bits = conditions.iter().enumerate();
        let unmerged = bits.fold(0, |set, (at, &bit)| set | ReadingSet::from(bit) << (2 * at));
        // Each reading is followed by the one that merges its slashes.
        unmerged | unmerged << 1 & self.merged
    }
}

/// Counts a slash of each of `readings`, and returns the readings that are now complete. Called at most `run` times
/// for each reading of a path.
#[inline(never)]
pub(super) fn count_slashes(readings: ReadingSet, counts: &mut [usize], run: usize) -> ReadingSet {
    let mut complete = 0;
    for (index, count) in counts.iter_mut().enumerate() {
        let reading = 1 << index;
        if readings & reading != 0 {
            *count += 1;
            if *count >= run {
                complete |= reading;
            }
        }
    }
    complete
}

/// The readings with these indexes in `READINGS`.
pub(super) type ReadingSet = u16;

pub(super) const ALL: ReadingSet = (1 << READINGS.len()) - 1;
pub(super) const DECODING: ReadingSet = reading_set(true, false, Cuts::Nothing);
pub(super) const MERGING: ReadingSet = reading_set(false, true, Cuts::Nothing);
pub(super) const CUTTING_PLAIN: ReadingSet = reading_set(false, false, Cuts::Plain);
pub(super) const CUTTING_DECODED: ReadingSet = reading_set(false, false, Cuts::Decoded);
pub(super) const CUTTING_LAST: ReadingSet = reading_set(false, false, Cuts::Last);

/// The readings that decode (if `decodes`), that merge (if `merges`), or else that have these `cuts`.
pub(super) const fn reading_set(decodes: bool, merges: bool, cuts: Cuts) -> ReadingSet {
    let mut set = 0;
    let mut index = 0;
    while index < READINGS.len() {
        let reading = &READINGS[index];
        let is_in = if decodes {
            reading.decodes
        } else if merges {
            reading.merges
        } else {
            reading.cuts as u8 == cuts as u8
        };
        if is_in {
            set |= 1 << index;
        }
        index += 1;
    }
    set
}
