//! The descriptors of a worker: how many connections it may hold, and how many are left for datagrams of Lua applications.
//! In: the limit of descriptors, the configuration of the start. Out: a number of connections; a warning.
//! Never: counts the applications of a later reload: the number of connections is that of the start.
//! Limits: `OWN_DESCRIPTORS` for the worker itself, one for each listener, and up to a part of `DATAGRAMS_PART` for datagrams.

use tidegate_config::model::Config;
use tidegate_gate::lookups::{LOOKUPS_MAX, ORIGIN_LOOKUPS_MAX};
use tidegate_gate::permits;

/// The descriptors that the worker itself needs: its event queue, wakers, channels and files.
const OWN_DESCRIPTORS: u64 = 64;
/// Datagrams get at most one of this many parts of the descriptors, because clients have priority.
const DATAGRAMS_PART: u64 = 4;

/// Maximum number of connections of the worker `index` of `workers`: its share of `connections-max`, and no more than its limit of
/// descriptors less those that are needed otherwise.
pub(crate) fn connections_max(
    config: &Config,
    (index, workers): (usize, usize),
    descriptors: u64,
) -> usize {
    let left = datagrams_max(config).min(descriptors / DATAGRAMS_PART);
    let most = descriptors.saturating_sub(own(config) + left).max(1);
    let share = |total| permits::share(total, index, workers, 0).max(1);
    let configured = config.server.connections_max.map_or(u64::MAX, |max| share(max).into());
    usize::try_from(most.min(configured)).unwrap_or(usize::MAX)
}

/// A warning if Lua applications may open more sockets for datagrams than have descriptors.
pub(crate) fn warning(config: &Config, workers: usize, descriptors: u64) -> Option<String> {
    let connections = connections_max(config, (0, workers), descriptors) as u64;
    let left = descriptors.saturating_sub(own(config) + connections);
    let most = datagrams_max(config);
    (most > left).then(|| {
        format!(
            "Lua applications may open {most} sockets in a worker for datagrams and lookups of names, but the worker's limit of \
             {descriptors} descriptors leaves {left} for them; if they open more, new clients wait; help: raise the \
             limit (ulimit -Hn, LimitNOFILE), or lower `requests-max` of the applications or `connections-max`"
        )
    })
}

fn own(config: &Config) -> u64 {
    OWN_DESCRIPTORS + config.listeners.len() as u64
}

/// The sockets for datagrams that Lua applications may have at once in a worker: their own, and one for each lookup.
fn datagrams_max(config: &Config) -> u64 {
    let lookups = LOOKUPS_MAX.min(ORIGIN_LOOKUPS_MAX * config.lua.len());
    let senders = config.lua.iter().filter(|app| !app.udp.is_empty());
    lookups as u64 + senders.map(|app| app.requests_max as u64).sum::<u64>()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A configuration with two listeners and these settings of `[server]` and of an application.
    fn config(server: &str, app: Option<&str>) -> Config {
        let lua =
            app.map(|app| format!("[[route]]\nlua = \"a\"\n[lua.a]\nscript = \"a.lua\"\n{app}\n"));
        let route = "[[route]]\nrespond = {}\n".to_owned();
        let listeners =
            "[[listener]]\nbind = \"127.0.0.1:80\"\n[[listener]]\nbind = \"127.0.0.1:81\"\n";
        let text = format!("[server]\n{server}\n{listeners}{}", lua.unwrap_or(route));
        tidegate_config::parse(&text, "the test").unwrap_or_else(|errors| panic!("{errors}"))
    }

    const UDP: &str = "udp = [\"127.0.0.1\"]\nrequests-max = 200";

    #[test]
    fn sockets_for_datagrams_have_descriptors_of_their_own() {
        let most = |app, descriptors| connections_max(&config("", app), (0, 1), descriptors);
        assert_eq!(most(None, 10_000), 10_000 - 66);
        assert_eq!(most(Some(""), 10_000), 10_000 - 66 - 128, "lookups of names");
        assert_eq!(most(Some(UDP), 10_000), 10_000 - 66 - 128 - 200);
        assert_eq!(most(Some(UDP), 400), 400 - 66 - 100, "clients keep three quarters");
        assert_eq!((most(None, 10), most(Some(UDP), 10)), (1, 1));
        let shared = config("connections-max = 9", Some(UDP));
        let shares = [0, 1].map(|index| connections_max(&shared, (index, 2), 10_000));
        assert_eq!(shares.iter().sum::<usize>(), 9);
    }

    #[test]
    fn applications_that_may_use_up_the_descriptors_are_reported() {
        let warns = |server, app, descriptors| {
            warning(&config(server, app), 1, descriptors).is_some_and(|text| {
                assert!(
                    text.contains("may open 328 sockets") && text.contains("LimitNOFILE"),
                    "{text}"
                );
                true
            })
        };
        assert!(warns("", Some(UDP), 1000));
        assert!(!warns("", Some(UDP), 4 * 328));
        assert!(!warns("connections-max = 500", Some(UDP), 1000), "fewer connections leave room");
        assert!(!warns("", None, 100));
    }
}
