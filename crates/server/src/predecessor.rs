//! The process that this one replaces: its transfers arrive here, and it is notified when this process serves.
//! In: the channel that this process has inherited. Out: transfers, until the earlier process has ended; a report.
//! Never: makes a start fail, or delays one by more than `FIRST_WAIT`: an earlier process that passes no transfer is replaced
//! without it.

use std::os::fd::OwnedFd;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt;

use tidegate_gate::maintenance::Switches;

use crate::health::Roster;
use crate::log;
use crate::state_transfer::{StateTransfer, TransferReader};
use crate::stats::Registry;
use crate::threads::{self, Ended};

/// How long the start waits for the first transfer.
const FIRST_WAIT: Duration = Duration::from_secs(5);
/// Bytes of one read.
const READ_BYTES: usize = 64 << 10;

/// See above.
pub(crate) struct Predecessor {
    /// The channel.
    channel: OwnedFd,
    /// Reads the received bytes.
    reader: TransferReader,
    /// Transfers may arrive.
    is_open: bool,
}

impl Predecessor {
    /// The process at the other end of `channel`.
    pub(crate) fn new(channel: OwnedFd) -> Self {
        // Before there were transfers, the channel was a pipe for the report.
        let is_open = sockopt::socket_type(&channel).is_ok();
        Self { channel, reader: TransferReader::default(), is_open }
    }

    /// The transfer at the start of this process; an empty one if there is none.
    pub(crate) fn first(&mut self) -> StateTransfer {
        let first = self.receive(Some(Instant::now() + FIRST_WAIT));
        if first.is_none() {
            log::warning(format_args!(
                "upgrade: no statistics and server states were received from the old process; they start empty"
            ));
        }
        first.unwrap_or_default()
    }

    /// Reports that this process serves. Gives each further transfer to `take`, on a separate thread, and sends `taken` after it.
    /// `taken` is dropped once there will be no further transfer.
    pub(crate) fn report_ready(
        mut self,
        taken: mpsc::Sender<()>,
        mut take: impl FnMut(StateTransfer) + Send + 'static,
    ) {
        if let Err(error) = rustix::io::write(&self.channel, b"1") {
            log::warning(format_args!("upgrade: cannot tell the old process to stop: {error}"));
        }
        let work = move || {
            while let Some(transfer) = self.receive(None) {
                take(transfer);
                // The receiver waits for the first transfer only.
                let _ = taken.send(());
            }
            Ended::AsPlanned
        };
        if let Err(error) = threads::spawn("predecessor", work) {
            log::error(format_args!(
                "upgrade: the last statistics of the old process are lost: {error}"
            ));
        }
    }

    /// Waits for the next transfer; `None`: there is none until `deadline`, or there will be none.
    fn receive(&mut self, deadline: Option<Instant>) -> Option<StateTransfer> {
        let mut buffer = vec![0; READ_BYTES];
        while self.is_open && self.wait(deadline) {
            let count = match rustix::io::read(&self.channel, &mut buffer) {
                Ok(count) => count,
                Err(Errno::INTR | Errno::AGAIN) => continue,
                Err(_) => 0,
            };
            self.is_open = count > 0;
            match self.reader.read(&buffer[..count]) {
                Ok(None) => {}
                Ok(Some(transfer)) => return Some(transfer),
                Err(fault) => {
                    log::warning(format_args!(
                        "upgrade: the statistics and server states of the old process are ignored: {fault}"
                    ));
                    self.is_open = false;
                }
            }
        }
        None
    }

    /// Waits for bytes. Returns false at the deadline.
    fn wait(&self, deadline: Option<Instant>) -> bool {
        loop {
            let rest = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            let rest = rest.map(|rest| Timespec {
                tv_sec: i64::try_from(rest.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: i64::from(rest.subsec_nanos()),
            });
            match poll(&mut [PollFd::new(&self.channel, PollFlags::IN)], rest.as_ref()) {
                Ok(ready) => return ready > 0,
                Err(Errno::INTR) => {}
                Err(_) => return false,
            }
        }
    }
}

/// The objects into which the statistics and states of an earlier process are merged.
pub(crate) struct Heritage {
    /// The counters of listeners, routes and servers; `None`: nothing is counted.
    pub(crate) registry: Option<Arc<Registry>>,
    /// The servers.
    pub(crate) roster: Arc<Roster>,
    /// The switches of `maintenance`.
    pub(crate) switches: Switches,
}

impl Heritage {
    /// Merges `first`, reports that this process serves, and merges each transfer that follows. Then sends `taken`. The receiver that it
    /// returns is disconnected when there will be no further transfer.
    pub(crate) fn follow(
        self,
        predecessor: Predecessor,
        first: StateTransfer,
        taken: mpsc::Sender<()>,
    ) -> mpsc::Receiver<()> {
        let (ends, end) = mpsc::channel();
        if let Some(registry) = &self.registry {
            registry.inherit(first.clone());
        }
        let (mut last, mut is_serving) = (first, false);
        predecessor.report_ready(taken, move |transfer| {
            let _kept_until_the_end: &mpsc::Sender<()> = &ends;
            self.roster.inherit_counts(&transfer, &last);
            // From the next transfer on, only this process takes commands.
            if !core::mem::replace(&mut is_serving, true) {
                self.roster.inherit_states(&transfer);
                self.roster.publish_to_all();
                self.switches.resume(&transfer.switches);
            }
            if let Some(registry) = &self.registry {
                registry.inherit(transfer.clone());
            }
            last = transfer;
        });
        end
    }
}

/// Waits until the earlier process has ended, if there is one, or until `deadline`.
pub(crate) fn wait_for_end(end: Option<&mpsc::Receiver<()>>, deadline: Instant) {
    if let Some(end) = end {
        // Nothing is sent.
        let _ = end.recv_timeout(deadline.saturating_duration_since(Instant::now()));
    }
}

#[cfg(test)]
mod tests {
    use tidegate_config::arrange::Arranged;

    use super::*;
    use std::io::{Read as _, Write as _};
    use std::os::unix::net::UnixStream;

    fn transfer(count: u64) -> StateTransfer {
        StateTransfer {
            process: [("accepted".to_owned(), count)].into(),
            ..StateTransfer::default()
        }
    }

    #[test]
    fn transfers_arrive_before_and_after_the_report() {
        let (mut old, new) = UnixStream::pair().expect("a socket pair");
        let mut predecessor = Predecessor::new(new.into());
        old.write_all(&transfer(1).encode().0).expect("there is room");
        assert_eq!(predecessor.first(), transfer(1));
        let (taken, transfers) = mpsc::channel();
        let (send, signal) = mpsc::channel();
        let take = move |transfer| taken.send(transfer).expect("the test waits");
        predecessor.report_ready(send, take);
        let mut report = [0];
        old.read_exact(&mut report).expect("a report");
        assert_eq!((report, signal.try_recv()), (*b"1", Err(mpsc::TryRecvError::Empty)));
        for count in [2, 3] {
            old.write_all(&transfer(count).encode().0).expect("there is room");
            assert_eq!((transfers.recv(), signal.recv()), (Ok(transfer(count)), Ok(())));
        }
        old.write_all(&transfer(4).encode().0[..10]).expect("there is room");
        drop(old);
        assert_eq!(signal.recv(), Err(mpsc::RecvError), "a part of a transfer is none");
        assert!(transfers.try_recv().is_err());
    }

    #[test]
    fn earlier_process_without_transfers_is_told() {
        let (mut old, new) = std::io::pipe().expect("a pipe");
        let mut predecessor = Predecessor::new(new.into());
        assert_eq!(predecessor.first(), StateTransfer::default());
        let (send, signal) = mpsc::channel();
        predecessor.report_ready(send, |_| panic!("there is no transfer"));
        assert_eq!(signal.recv(), Err(mpsc::RecvError));
        let mut report = [0];
        old.read_exact(&mut report).expect("a report");
        assert_eq!(report, *b"1");
    }

    #[test]
    fn end_of_the_earlier_process_is_waited_for() {
        let (old, new) = UnixStream::pair().expect("a socket pair");
        let roster = Arc::new(Roster::new(&Arranged::default(), Vec::new()));
        let heritage = Heritage { registry: None, roster, switches: Switches::default() };
        let (taken, _signal) = mpsc::channel();
        let end = heritage.follow(Predecessor::new(new.into()), StateTransfer::default(), taken);
        assert_eq!(end.try_recv(), Err(mpsc::TryRecvError::Empty));
        wait_for_end(Some(&end), Instant::now());
        assert_eq!(end.try_recv(), Err(mpsc::TryRecvError::Empty), "not longer than it may");
        drop(old);
        wait_for_end(Some(&end), Instant::now() + Duration::from_secs(60));
        assert_eq!(end.try_recv(), Err(mpsc::TryRecvError::Disconnected));
        wait_for_end(None, Instant::now() + Duration::from_secs(60));
    }

    #[test]
    fn garbage_of_the_earlier_process_is_ignored() {
        let (mut old, new) = UnixStream::pair().expect("a socket pair");
        let mut predecessor = Predecessor::new(new.into());
        old.write_all(b"{\"transfer\":2}\nodd").expect("there is room");
        assert_eq!(predecessor.first(), StateTransfer::default());
        let (send, signal) = mpsc::channel();
        predecessor.report_ready(send, |_| panic!("there is no transfer"));
        assert_eq!(signal.recv(), Err(mpsc::RecvError));
    }
}
