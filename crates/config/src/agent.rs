//! Reads `agent` of a pool.
//! In: the table of a pool, and its servers. Out: checked settings.
//! Limits: `SEND_BYTES_MAX` bytes of `send`.

use tidegate_base::Span;

use crate::listeners::refused;
use crate::model::{AgentCheck, Pool, ServerAddress};
use crate::pattern::ValueError;
use crate::report::{Kind, Note, Notes};
use crate::table::Table;

/// Maximum length of `send`.
const SEND_BYTES_MAX: usize = 256;

/// Reads how the agents of `pool`, whose servers were read, are queried; `None` if there are none.
pub(crate) fn read(pool: &Pool, table: &Table<'_>, notes: &mut Notes) -> Option<AgentCheck> {
    let settings = table.open_table("agent", notes)?;
    let (every, timeout) = (Span::from_secs(2), Span::from_secs(1));
    let mut agent = AgentCheck { port: 0, every, timeout, send: None };
    settings.set_number("port", &mut agent.port, notes);
    settings.set_duration("every", &mut agent.every, notes);
    settings.set_duration("timeout", &mut agent.timeout, notes);
    if let Some(text) = settings.text("send", notes) {
        let is_line = text.text.bytes().all(|byte| matches!(byte, b' '..=b'~'));
        if is_line && text.text.len() <= SEND_BYTES_MAX {
            agent.send = Some(text.text);
        } else {
            let what = format!("not a line of up to {SEND_BYTES_MAX} bytes of printable ASCII");
            let help = "write send = \"app\"; the end of the line is added".to_owned();
            notes.error(refused("send", &text, ValueError { what, help }));
        }
    }
    if pool.servers.iter().any(|server| matches!(server.address, ServerAddress::Unix(_))) {
        let what = "an agent listens on a port of its server's address; a server at a unix socket has no port";
        let note = Note::new(Kind::Conflict, table.key_place("agent"), what);
        notes.error(note.help("remove `agent`, or move these servers to another pool"));
    }
    Some(agent)
}
