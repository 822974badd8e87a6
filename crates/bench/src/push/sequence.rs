//! The accounting of messages: which ones are new, out of order or repeated on one connection, and how many are lost in total.
//! In: the number of each received message. Out: a `Receipt`; sums of receipts.
//! Never: counts a message of a connection twice as received.
//! Limits: `RECENT_MAX` newest messages of a connection are remembered. An older one counts as a duplicate, so lost
//! messages are never hidden.
//! Invariant: `next` is above every number that was noted; bit `n` of `recent` is set if `next - 1 - n` was received.

/// How many of the newest messages of a connection are remembered.
pub const RECENT_MAX: u32 = u32::BITS;

/// The messages that one connection has received, in 8 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SequenceWindow {
    /// One above the highest number so far; 0 before the first message.
    next: u32,
    /// Which of the newest numbers were received; the lowest bit is `next - 1`.
    recent: u32,
}

/// The classification of a received message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Receipt {
    /// Received for the first time, after all messages with lower numbers that were received.
    New,
    /// Received for the first time, after a message with a higher number.
    OutOfOrder,
    /// Received before, or older than the remembered messages.
    Duplicate,
}

impl SequenceWindow {
    /// Notes the message with this number, counted from 0 for each channel.
    pub fn note(&mut self, number: u32) -> Receipt {
        if number >= self.next {
            let step = number - self.next + 1;
            self.recent = self.recent.checked_shl(step).unwrap_or(0) | 1;
            self.next = number + 1;
            return Receipt::New;
        }
        let age = self.next - 1 - number;
        let Some(bit) = 1_u32.checked_shl(age) else { return Receipt::Duplicate };
        if self.recent & bit != 0 {
            return Receipt::Duplicate;
        }
        self.recent |= bit;
        Receipt::OutOfOrder
    }
}

/// The receipts of several connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Receipts {
    /// Messages received for the first time, out-of-order ones included.
    pub received: u64,
    /// Of these, messages that arrived after a newer one.
    pub out_of_order: u64,
    /// Messages received again.
    pub duplicated: u64,
    /// Messages that this run did not publish, or that it published in another channel.
    pub foreign: u64,
}

impl Receipts {
    /// Adds one receipt.
    pub fn note(&mut self, receipt: Receipt) {
        match receipt {
            Receipt::New => self.received += 1,
            Receipt::OutOfOrder => {
                self.received += 1;
                self.out_of_order += 1;
            }
            Receipt::Duplicate => self.duplicated += 1,
        }
    }

    /// Adds the receipts of `other`.
    pub fn add(&mut self, other: &Self) {
        self.received += other.received;
        self.out_of_order += other.out_of_order;
        self.duplicated += other.duplicated;
        self.foreign += other.foreign;
    }

    /// How many of the expected messages were not received.
    #[must_use]
    pub fn lost(&self, expected: u64) -> u64 {
        expected.saturating_sub(self.received)
    }
}

#[cfg(test)]
mod tests {
    use super::Receipt::{Duplicate, New, OutOfOrder};
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn receipts(numbers: &[u32]) -> Vec<Receipt> {
        let mut window = SequenceWindow::default();
        numbers.iter().map(|number| window.note(*number)).collect()
    }

    #[test]
    fn each_receipt_is_classified() {
        for (numbers, expected) in [
            (&[0, 1, 2][..], &[New, New, New][..]),
            (&[0, 0, 1, 1], &[New, Duplicate, New, Duplicate]),
            // A gap is not a receipt: it shows as lost in the sum.
            (&[0, 3], &[New, New]),
            (&[0, 2, 1, 1, 3], &[New, New, OutOfOrder, Duplicate, New]),
            (&[5, 0, 4, 5], &[New, OutOfOrder, OutOfOrder, Duplicate]),
            (&[31, 0, 0], &[New, OutOfOrder, Duplicate]),
            // 0 is 32 messages old: not remembered.
            (&[32, 0, 1], &[New, Duplicate, OutOfOrder]),
            (&[0, 1000, 0], &[New, New, Duplicate]),
        ] {
            assert_eq!(receipts(numbers), expected, "{numbers:?}");
        }
    }

    #[test]
    fn lost_messages_are_the_expected_ones_that_were_not_received() {
        let mut sum = Receipts::default();
        for receipt in receipts(&[0, 1, 1, 4, 3]) {
            sum.note(receipt);
        }
        let expected = Receipts { received: 4, out_of_order: 1, duplicated: 1, foreign: 0 };
        assert_eq!((sum, sum.lost(6)), (expected, 2));
        let mut both = expected;
        both.add(&expected);
        assert_eq!((both.received, both.duplicated, both.lost(12)), (8, 2, 4));
        assert_eq!(sum.lost(3), 0, "more than expected");
    }

    proptest! {
        /// Goal: within the remembered window, receipts are classified as by a set of all received numbers.
        #[test]
        fn window_agrees_with_a_set_of_all_numbers(numbers in prop::collection::vec(0_u32..RECENT_MAX, 0..100)) {
            let (mut window, mut seen) = (SequenceWindow::default(), BTreeSet::new());
            for number in numbers {
                let is_newest = seen.last().is_none_or(|newest| number > *newest);
                let expected = match (seen.insert(number), is_newest) {
                    (false, _) => Duplicate,
                    (true, true) => New,
                    (true, false) => OutOfOrder,
                };
                prop_assert_eq!(window.note(number), expected);
            }
        }
    }
}
