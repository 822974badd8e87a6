//! The users of a worker's sockets for datagrams.
//! In: sockets that applications and lookups have opened. Out: the user of a socket, for a completion.
//! Invariant: each entry is an open socket of the reactor, and the reverse.

use tidegate_gate::lookups::LookupId;
use tidegate_reactor::DatagramId;

use crate::carrier::internal_request::AppCaller;

/// The purpose of a socket.
#[derive(Clone, Copy, Debug)]
pub(crate) enum DatagramUser {
    /// A script has opened it.
    App(AppDatagrams),
    /// The query of a lookup.
    Lookup(LookupId<AppCaller>),
}

/// A socket of the VM of an application.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AppDatagrams {
    /// The index of the application.
    pub(crate) app: u16,
    /// The number of its VM.
    pub(crate) life: u32,
    /// The VM's id of the socket.
    pub(crate) socket: tidegate_lua::DatagramSocketId,
}

/// See the module header.
#[derive(Default)]
pub(crate) struct DatagramUsers {
    /// By the index of the socket in the reactor, which is dense.
    users: Vec<Option<(DatagramId, DatagramUser)>>,
    len: usize,
}

impl DatagramUsers {
    /// The number of sockets.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Notes the user of a socket that was opened.
    pub(crate) fn insert(&mut self, socket: DatagramId, user: DatagramUser) {
        let index = socket.index as usize;
        if self.users.len() <= index {
            self.users.resize(index + 1, None);
        }
        if let Some(place) = self.users.get_mut(index) {
            self.len += usize::from(place.is_none());
            *place = Some((socket, user));
        }
    }

    /// The user of a socket; `None` if the id is stale.
    pub(crate) fn get(&self, socket: DatagramId) -> Option<DatagramUser> {
        let (of, user) = self.users.get(socket.index as usize)?.as_ref()?;
        (*of == socket).then_some(*user)
    }

    /// Forgets a socket that is closed. Returns whether it was there.
    pub(crate) fn remove(&mut self, socket: DatagramId) -> bool {
        let is_there = self.get(socket).is_some();
        if is_there && let Some(place) = self.users.get_mut(socket.index as usize) {
            *place = None;
            self.len -= 1;
        }
        is_there
    }

    /// All sockets and their users.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (DatagramId, DatagramUser)> + '_ {
        self.users.iter().flatten().copied()
    }

    /// Other code of an application is in force: its sockets belong to the earlier VM, which has the index `to` now.
    pub(crate) fn rename_app(&mut self, from: usize, to: usize) {
        for (_, user) in self.users.iter_mut().flatten() {
            match user {
                DatagramUser::App(of) if usize::from(of.app) == from => of.app = to as u16,
                DatagramUser::App(_) | DatagramUser::Lookup(_) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tidegate_base::Id;

    use super::*;

    #[test]
    fn stale_id_has_no_user() {
        let user = |app| DatagramUser::App(AppDatagrams { app, life: 1, socket: Id::NONE });
        let app_of = |users: &DatagramUsers, id| match users.get(id) {
            Some(DatagramUser::App(of)) => Some(of.app),
            Some(DatagramUser::Lookup(_)) | None => None,
        };
        let (first, next) = (DatagramId::new(3, 1), DatagramId::new(3, 3));
        let mut users = DatagramUsers::default();
        users.insert(first, user(7));
        assert_eq!((users.len(), app_of(&users, first), app_of(&users, next)), (1, Some(7), None));
        assert!(!users.remove(next) && users.remove(first) && !users.remove(first));
        users.insert(next, user(8));
        assert_eq!((users.len(), app_of(&users, first), app_of(&users, next)), (1, None, Some(8)));
        users.rename_app(8, 9);
        assert_eq!((app_of(&users, next), users.iter().count()), (Some(9), 1));
    }
}
