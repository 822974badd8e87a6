//! All readings of an ambiguous path at once: what sets them apart, and which parts of the path need no tokens.
//! In: the tokens of a path, one by one. Out: the readings that differ, the parts that can be left out.
//! Never: looks a reading up.

use super::{Cuts, READINGS, SEMICOLONS};

/// All readings of an ambiguous path at once, each as one bit of a set: what each of them makes of the tokens so
/// far. It shows which readings differ, and which parts of the path need no tokens.
///
/// A reading is complete after `run` slashes, because no pattern sees more. A part that changes no incomplete
/// reading needs no tokens. Each part that has some adds text or a slash to an incomplete reading, so that their
/// number depends on the patterns only, not on the path.
pub(super) struct Followed {
    /// How many slashes of a reading make a difference.
    pub(super) run: usize,
    /// The readings that are not complete.
    pub(super) open: ReadingSet,
    /// The number of slashes of each reading.
    pub(super) slashes: [usize; READINGS.len()],
    /// The readings that are in parameters that they strip.
    pub(super) cutting: ReadingSet,
    /// The readings that end with a slash.
    pub(super) empty: ReadingSet,
    /// The readings that have merged slashes.
    pub(super) merged: ReadingSet,
    /// What else sets readings apart.
    pub(super) differences: u8,
    /// Since the last plain slash.
    pub(super) segment: Part,
    /// Since the last slash of any kind.
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

// What sets readings apart.
pub(super) const PLAIN_SEMICOLON: u8 = 1;
pub(super) const ENCODED: u8 = 2;
/// Outside of parameters of a plain semicolon.
pub(super) const ENCODED_OUTSIDE: u8 = 4;
/// Outside of parameters of a plain semicolon.
pub(super) const ENCODED_SEMICOLON_OUTSIDE: u8 = 8;
/// Or a backslash.
pub(super) const LENIENT_SLASH: u8 = 16;
/// In parameters of a plain semicolon.
pub(super) const LENIENT_SLASH_INSIDE: u8 = 32;

impl Followed {
    /// The readings of unambiguous tokens with so many `slashes`, of which the last segment begins at `start`.
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

    /// Adds text after tokens of this `length` to those of `readings` that do not cut it. Returns those to which
    /// it adds something.
    #[inline(always)]
    pub(super) fn add_text(&mut self, readings: ReadingSet, length: usize) -> ReadingSet {
        let readings = readings & !self.cutting;
        self.empty &= !readings;
        // A reading whose segment is this long needs no more of it.
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

    /// Adds a plain slash after tokens of this `length`. Returns how many of them are needed.
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

    /// Adds what some servers take for a slash after tokens of this `length`. Returns how many of them are
    /// needed.
    #[inline(always)]
    pub(super) fn end_part(&mut self, length: usize) -> usize {
        let is_inside = self.cutting & CUTTING_PLAIN != 0;
        // A plain slash ends all parameters. Those that nothing else ends continue in the next part.
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

    /// Adds a slash to `readings`. Returns those to which it adds something.
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

    /// Notes what sets readings apart, unless no pattern can see it.
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

/// Counts a slash of each of `readings`, and returns those that are complete. At most `run` times for each
/// reading of a path.
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

/// The readings that decode or merge, if that is asked for; otherwise those with these `cuts`.
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
