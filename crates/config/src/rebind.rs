//! Replaces the address of the only listener of a configuration (`tidegate run --bind`).
//! In: a checked configuration, an address as text. Out: the changed configuration, or why it cannot be changed.
//! Never: opens a socket.

use crate::model::{Bind, Config};
use crate::pattern;

/// Makes the only listener of `config` listen on `address`, in the syntax of `bind` in the file.
///
/// # Errors
/// The address is invalid, there are several listeners, or the listener's `proxy-protocol` does not fit the
/// address. The message contains the fix.
pub fn rebind(config: &mut Config, address: &str) -> Result<(), String> {
    let bind = pattern::parse_bind(address)
        .map_err(|why| format!("--bind cannot be {address:?}: {}; {}", why.what, why.help))?;
    let listener = match &mut config.listeners[..] {
        [listener] => listener,
        listeners => {
            let names: Vec<&str> = listeners.iter().map(|l| l.name.as_str()).collect();
            return Err(format!(
                "--bind replaces the address of the only listener, but the file has {}: {}; \
                 change `bind` in the file",
                names.len(),
                names.join(", ")
            ));
        }
    };
    let by_path = matches!(bind, Bind::Unix(_));
    if listener.proxy_protocol.as_ref().is_some_and(|sources| sources.unix != by_path) {
        return Err(format!(
            "--bind cannot be {address:?}: `from` of listener {}'s `proxy-protocol` requires the other kind \
             of address (IP or unix); change `bind` and `from` in the file",
            listener.name
        ));
    }
    // A listener without a name is named after its address.
    let named_after = match &listener.bind {
        Bind::Tcp(address) => address.to_string(),
        Bind::Unix(path) => format!("unix:{path}"),
    };
    if listener.name == named_after {
        address.clone_into(&mut listener.name);
    }
    listener.bind = bind;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse;

    fn rebound(listeners: &str, address: &str) -> Result<(String, Bind), String> {
        let text = format!("{listeners}\n[[route]]\nrespond = {{}}\n");
        let mut config = parse(&text, "the test").expect("the text is valid");
        rebind(&mut config, address)?;
        let listener = config.listeners.remove(0);
        Ok((listener.name, listener.bind))
    }

    #[test]
    fn only_listener_gets_the_new_address() {
        let one = "[[listener]]\nbind = \"127.0.0.1:80\"";
        let bind = Bind::Tcp("[::1]:81".parse().expect("an address"));
        assert_eq!(rebound(one, "[::1]:81"), Ok(("[::1]:81".to_owned(), bind.clone())));
        let named = "[[listener]]\nname = \"web\"\nbind = \"127.0.0.1:80\"";
        assert_eq!(rebound(named, "[::1]:81"), Ok(("web".to_owned(), bind)));
        assert!(
            matches!(rebound(named, "unix:/run/a"), Ok((_, Bind::Unix(path))) if path == "/run/a")
        );
    }

    #[test]
    fn errors_name_the_listeners_and_the_fix() {
        let one = "[[listener]]\nbind = \"127.0.0.1:80\"\nproxy-protocol = { from = [\"::1\"] }";
        let error = rebound(one, ":81").expect_err("no address");
        assert!(error.contains("\":81\"") && error.contains("0.0.0.0:81"), "{error}");
        let error = rebound(one, "unix:/run/a").expect_err("the proxies have addresses");
        assert!(error.contains("proxy-protocol"), "{error}");
        let two = "[[listener]]\nname = \"a\"\nbind = \"127.0.0.1:80\"\n\
                   [[listener]]\nname = \"b\"\nbind = \"127.0.0.1:81\"";
        let error = rebound(two, "127.0.0.1:82").expect_err("two listeners");
        assert!(error.contains("has 2: a, b;"), "{error}");
    }
}
