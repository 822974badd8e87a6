//! Sockets, polling, buffers, timers and mailboxes with one completion-based interface, on two kernels: Linux through epoll, and
//! a simulator.
//! In: operations of `interface::Reactor`. Out: `interface::Completion`s.
//! Never: knows a protocol. The only other `unsafe` code of the project is in `lua/src/engine/`.
//! Limits: see `tidegate_base::limits`.

pub mod driver;
pub mod epoll;
pub mod inherited;
pub mod interface;
pub mod interrupts;
pub mod kernel;
pub mod mailbox;
mod outq;
mod pipe;
pub mod sampler;
pub mod signals;
pub mod sim;
pub mod source;
mod steering;
pub mod waker;
pub mod worker;

pub use driver::Loop;
pub use epoll::EpollReactor;
pub use interface::{
    CloseReason, Completion, DatagramFault, DatagramId, DatagramSent, DatagramSock, Driver,
    Handler, LastWait, ListenError, ListenOptions, ListenerId, OutputProgress, Peer, Reactor, Room,
    ServerKey, Shortage, Sock, SockId,
};
pub use mailbox::{Mailbox, Sender};
pub use sim::{Faults, SimDatagrams, SimNet, SimPeer, SimReactor, SimServer};
pub use steering::LeavingListeners;
pub use waker::{Waker, make_wakers};
