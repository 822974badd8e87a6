//! Requests whose bandwidth is limited: how much of their bodies may be transferred now, and when they continue.
//! In: carriers and actions that are about to transfer bytes; the timer. Out: how many bytes they may transfer; producers
//! paused and resumed.
//! Never: holds up another request or stream; buffers more than a client that reads slowly would cause.
//! Limits: those of `paces.rs`.

use tidegate_base::Id;
use tidegate_reactor::Reactor;

use crate::action::Running;
use crate::action::proxy::exchange::Exchange;
use crate::action::synthetic::SyntheticResponse;
use crate::paces::BodyDirection;
use crate::timers::WorkerTimer;
use crate::worker::Worker;

impl Worker {
    /// How many bytes of the body of a server's response may be relayed now. If none, the server is not read until
    /// more may.
    pub(crate) fn response_room<R: Reactor>(&mut self, reactor: &mut R, id: Id<Exchange>) -> usize {
        let hook_room = self.body_hook_room(id);
        let Some(exchange) = self.exchanges.find_mut(id) else { return usize::MAX };
        let up = exchange.attempt.up;
        if hook_room == 0 {
            self.set_server_receiving(reactor, up, false);
            return 0;
        }
        let Some(pace) = exchange.pace.as_mut().filter(|_| exchange.auth_request.is_none()) else {
            return hook_room;
        };
        let body = (Running::Proxy(id), BodyDirection::Down);
        let room = pace.room(body, reactor.now(), &mut self.paces);
        if room == 0 {
            self.set_server_receiving(reactor, up, false);
            self.await_turn(reactor);
        }
        usize::try_from(room).unwrap_or(usize::MAX).min(hook_room)
    }

    /// How many bytes of the body of a request may be forwarded now.
    pub(in crate::action) fn request_room<R: Reactor>(
        &mut self,
        reactor: &mut R,
        id: Id<Exchange>,
    ) -> usize {
        let Some(exchange) = self.exchanges.find_mut(id) else { return usize::MAX };
        let Some(pace) = exchange.pace.as_mut() else { return usize::MAX };
        let body = (Running::Proxy(id), BodyDirection::Up);
        let room = pace.room(body, reactor.now(), &mut self.paces);
        if room == 0 {
            self.await_turn(reactor);
        }
        usize::try_from(room).unwrap_or(usize::MAX)
    }

    /// How many bytes of the body of a response by Tidegate may be sent now.
    pub(in crate::action) fn synthetic_room<R: Reactor>(
        &mut self,
        reactor: &mut R,
        id: Id<SyntheticResponse>,
    ) -> usize {
        let pace = self.synthetics.get_mut(id).and_then(|response| response.pace.as_mut());
        let Some(pace) = pace else { return usize::MAX };
        let body = (Running::Synthetic(id), BodyDirection::Down);
        let room = pace.room(body, reactor.now(), &mut self.paces);
        if room == 0 {
            self.await_turn(reactor);
        }
        usize::try_from(room).unwrap_or(usize::MAX)
    }

    /// A body has begun to wait.
    fn await_turn<R: Reactor>(&mut self, reactor: &mut R) {
        self.accounts.counters.bandwidth_waits.add(1);
        WorkerTimer::Bandwidth.set(reactor, self.paces.next_at());
    }

    /// Resumes the bodies whose turn has come.
    pub(crate) fn resume_paced<R: Reactor>(&mut self, reactor: &mut R) {
        while let Some((running, way)) = self.paces.take_due(reactor.now()) {
            match running {
                Running::Proxy(id) => self.resume_paced_exchange(reactor, id, way),
                Running::Synthetic(id) => {
                    let Some(response) = self.synthetics.get_mut(id) else { continue };
                    if let Some(pace) = &mut response.pace {
                        pace.end_turn(way);
                    }
                    let to = response.requester();
                    // Otherwise, the client's output resumes it when it has drained.
                    if !self.is_client_held(to) {
                        self.yielded.push(running);
                    }
                }
                Running::None
                | Running::Lua(_)
                | Running::Unverified(_)
                | Running::Tarpit(_)
                | Running::WebSocket(_)
                | Running::Push(_) => {}
            }
        }
        WorkerTimer::Bandwidth.set(reactor, self.paces.next_at());
    }

    fn resume_paced_exchange<R: Reactor>(
        &mut self,
        reactor: &mut R,
        id: Id<Exchange>,
        way: BodyDirection,
    ) {
        let Some(exchange) = self.exchanges.get_mut(id) else { return };
        if let Some(pace) = &mut exchange.pace {
            pace.end_turn(way);
        }
        let to = exchange.requester;
        match way {
            BodyDirection::Up => self.resume_request(to),
            // Otherwise, the client's output resumes the response when it has drained.
            BodyDirection::Down if !self.is_client_held(to) => self.resume_server(reactor, id),
            BodyDirection::Down => {}
        }
    }
}
