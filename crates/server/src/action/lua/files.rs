//! Files of the folder `files` of applications (`response:file`, `tide.files`).
//! In: `Effect::ReadFile`; pieces that the threads of `file_reader.rs` have read. Out: results for the VMs.
//! Never: reads a file on the worker, except in tests.
//! Limits: those of `file_reader.rs`.

use tidegate_base::limits::MAILS_PER_TURN_MAX;
use tidegate_lua::OperationId;

use crate::file_reader::{BUSY, FileDoor, FileJob, FilePiece, Submitted};
use crate::worker::Worker;

/// A read of a piece of a file in progress.
#[derive(Debug)]
pub(crate) struct LuaFile {
    /// The index of the application.
    app: u16,
    /// The number of its VM.
    life: u32,
    /// The VM's id of the read.
    operation: OperationId,
}

impl LuaFile {
    /// Notes that a reload has changed the index of an application.
    pub(super) fn rename_app(&mut self, from: usize, to: usize) {
        if usize::from(self.app) == from {
            self.app = to as u16;
        }
    }
}

impl Worker {
    /// Uses these threads for files.
    pub(crate) fn read_files_by(&mut self, door: FileDoor) {
        self.lua.file_door = door;
    }

    /// Carries out `Effect::ReadFile`.
    pub(super) fn read_lua_file(
        &mut self,
        app: usize,
        operation: OperationId,
        (path, offset, bytes_max): (&[u8], u64, usize),
    ) {
        let life = self.lua.apps.life(app);
        let folder = self.lua.apps.settings(app).and_then(|app| app.files.clone());
        let Some(folder) = folder else {
            let why = "the application has no folder: set `files` in [lua.NAME]";
            return self.lua.apps.complete(app, life, operation, Err(why));
        };
        let Ok(path) = String::from_utf8(path.to_vec()) else {
            return self.lua.apps.complete(app, life, operation, Err("not found"));
        };
        let file = LuaFile { app: app as u16, life, operation };
        let Ok(ticket) = self.lua.files.insert(file) else {
            return self.lua.apps.complete(app, life, operation, Err(BUSY));
        };
        self.accounts.counters.lua_file_reads.add(1);
        let job = FileJob { folder, path, offset, bytes_max, ticket };
        match self.lua.file_door.submit(job) {
            Submitted::Waits => {}
            Submitted::Read(piece) => self.take_file(piece),
            Submitted::Refused(why) => {
                self.take_file(FilePiece { ticket, result: Err(why.to_owned()) })
            }
        }
    }

    /// Takes pieces that the threads have read.
    pub(crate) fn receive_files(&mut self) {
        for _ in 0..MAILS_PER_TURN_MAX {
            let Some(piece) = self.lua.file_door.take() else { return };
            self.take_file(piece);
        }
        self.lua.file_door.ring_again();
    }

    fn take_file(&mut self, piece: FilePiece) {
        let Some(file) = self.lua.files.remove(piece.ticket) else { return };
        let result = piece.result.as_deref().map_err(String::as_str);
        self.lua.apps.complete(usize::from(file.app), file.life, file.operation, result);
    }

    /// The reads of files in progress.
    pub(crate) fn file_reads(&self) -> usize {
        self.lua.files.len()
    }
}
