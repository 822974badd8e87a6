//! The files that a configuration names, once they are read.
//! In: a configuration, the contents of files. Out: what routes refer to, or findings with the lines of the files.

use tidegate_config::findings::SettingPositions;
use tidegate_config::model::{Action, Config, PoolChoice};
use tidegate_config::text::Text;
use tidegate_config::{parse_in_folder, supply};

const TEXT: &str = "[[listener]]\nbind = \"127.0.0.1:80\"\n\
    [[route]]\npath = \"/a\"\nproxy = { pool = { map = \"hosts\", key = \"{host}\" } }\n\
    [[route]]\nproxy = { pool = { map = \"hosts\", key = \"{cookie:x}\", default = \"b\" } }\n\
    [map.hosts]\nfile = \"hosts.map\"\nkind = \"suffix\"\n\
    [pool.a]\nservers = [\"127.0.0.1:1\"]\n[pool.b]\nservers = [\"127.0.0.1:2\"]\n";

fn load() -> (Config, SettingPositions) {
    let loaded = parse_in_folder(TEXT, "site.toml", "/etc").unwrap_or_else(|e| panic!("{e}"));
    let warnings = loaded.warnings.mistakes();
    assert_eq!(warnings, [], "no pool counts as unused: the file of the map may name it");
    (loaded.config, loaded.places)
}

#[test]
fn pools_of_a_map_are_found_by_their_names() {
    let (mut config, _) = load();
    let mut read = 0;
    let content = "# hosts\n.x b\n.y a\n.z b\n";
    let result = supply(&mut config, |path| {
        read += 1;
        assert_eq!(path, "/etc/hosts.map");
        Ok(content.into())
    });
    assert_eq!((result, read), (Ok(()), 1));
    for route in &config.routes {
        let Action::Proxy(proxy) = &route.action else { panic!("a proxy") };
        let PoolChoice::Map(choice) = &proxy.pool else { panic!("a map") };
        let value = config.maps[choice.map].table.find(&mut b"www.y".to_vec()).expect("a value");
        assert_eq!(config.pools[choice.pools[value]].name, "a");
    }
}

#[test]
fn host_without_a_key_is_a_warning() {
    let text = TEXT.replacen("path = \"/a\"", "host = [\"a.x\", \"b.y\", \"*.z\"]", 1);
    let warnings = |content: &'static str| {
        let mut loaded =
            parse_in_folder(&text, "site.toml", "/etc").unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(supply(&mut loaded.config, |_| Ok(content.into())), Ok(()));
        loaded.note_supplied(&Text::of(&text, "site.toml"));
        let mistakes = loaded.warnings.mistakes().iter();
        mistakes.map(|mistake| (mistake.line, mistake.what.clone())).collect::<Vec<_>>()
    };
    assert_eq!(warnings(".x a\n.y b\n"), []);
    let one = "pool: map \"hosts\" has no key for b.y, whose requests get a 404 response";
    assert_eq!(warnings(".x a\n"), [(5, one.to_owned())]);
    let none = "pool: map \"hosts\" has no entry, so every request gets a 404 response";
    assert_eq!(warnings("# later\n"), [(5, none.to_owned())]);
}

#[test]
fn keys_that_conditions_allow_but_the_map_lacks_are_warnings() {
    let warnings = |key: &str, earlier: &str, conditions: &str| {
        let text = format!(
            "[[listener]]\nbind = \"127.0.0.1:80\"\n{earlier}[[route]]\n{conditions}\n\
             proxy = {{ pool = {{ map = \"m\", key = \"{key}\" }} }}\n\
             [map.m]\nentries = {{ \"/a\" = \"a\", \"x/a\" = \"a\", \"x\" = \"a\", \"GET\" = \"a\" }}\n\
             [pool.a]\nservers = [\"127.0.0.1:1\"]\n"
        );
        let mut loaded =
            parse_in_folder(&text, "site.toml", "/etc").unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(supply(&mut loaded.config, |_| Ok(String::new().into())), Ok(()));
        loaded.note_supplied(&Text::of(&text, "site.toml"));
        let mistakes = loaded.warnings.mistakes().iter();
        let texts = mistakes.filter(|mistake| mistake.what.starts_with("pool: "));
        texts.map(|mistake| mistake.what.clone()).collect::<Vec<_>>().join("; ")
    };
    let absent = |key: &str| {
        format!("pool: map \"m\" has no key \"{key}\", whose requests get a 404 response")
    };
    for (key, conditions, expected) in [
        ("{path}", "path = [\"/a\", \"/b\"]", Some("/b")),
        ("{path}", "path = [\"/a\", \"/b/*\"]", None),
        ("{host}{path}", "path = [\"/a\"]\nhost = [\"x\", \"y\"]", Some("y/a")),
        ("{query:v}", "query = { v = \"x\" }", None),
        ("{query:v}", "query = { v = \"y\" }", Some("y")),
        ("{query:v}", "query = { v = { prefix = \"y\" } }", None),
        ("{query:v}", "query = { w = \"y\" }", None),
        ("{header:x-v}", "headers = { X-V = \"y\" }", Some("y")),
        ("{header:x-v}", "headers = { X-V = { equals = \"X\", ignore-case = true } }", None),
        ("{cookie:v}", "cookies = { v = \"y\" }", Some("y")),
        ("{method}", "method = [\"GET\", \"PUT\"]", Some("PUT")),
        ("{path}{client}", "path = \"/b\"", None),
    ] {
        let expected = expected.map(absent).unwrap_or_default();
        assert_eq!(warnings(key, "", conditions), expected, "{key} {conditions}");
    }
    let several = "pool: map \"m\" has no key \"/b\", and lacks 1 more that the conditions of the route allow; such requests get a \
                   404 response";
    assert_eq!(warnings("{path}", "", "path = [\"/b\", \"/a\", \"/c\"]"), several);
    let earlier = "[[route]]\npath = \"/b\"\nrespond = {}\n";
    assert_eq!(warnings("{path}", earlier, "path = [\"/b\", \"/a\"]"), "");
}

#[test]
fn keys_that_no_request_has_are_warnings() {
    let warnings = |kind: &str, content: &'static str| {
        let text = TEXT.replacen("\"suffix\"", kind, 1);
        let mut loaded =
            parse_in_folder(&text, "site.toml", "/etc").unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(supply(&mut loaded.config, |_| Ok(content.into())), Ok(()));
        loaded.note_supplied(&Text::of(&text, "site.toml"));
        let mistakes = loaded.warnings.mistakes().iter();
        mistakes.map(|mistake| (mistake.line, mistake.what.clone())).collect::<Vec<_>>()
    };
    let keys = "a.x a\n[::1] a\nA.x a\nb.x:80 a\nc.x. a\n[::2]:80 b\n";
    let what = "pool: no request can match the key \"A.x\" of map \"hosts\" or 3 more of its keys: {host} is in lower \
                case, without a port and without a dot at the end";
    assert_eq!(warnings("\"exact\"", keys), [(5, what.to_owned())]);
    assert_eq!(warnings("\"suffix\"", keys), []);
    let what = "pool: no request can match the key \"b.x:80\" of map \"hosts\": {host} is in lower case, without a port and \
                without a dot at the end";
    let exact = "\"exact\"\nignore-case = true";
    assert_eq!(warnings(exact, "A.x a\nb.x:80 a\n"), [(5, what.to_owned())]);
    let what = "/etc/hosts.map: no text matches the regular expression \"b^a\"";
    assert_eq!(warnings("\"regex\"", "^a a\nb^a b\n"), [(9, what.to_owned())]);
}

#[test]
fn missing_pool_is_reported_with_file_and_line() {
    for (content, expected) in [
        (".x b\n\n.y aa\n.z aa\n", "/etc/hosts.map: line 3: there is no pool \"aa\"; write \"a\""),
        (
            ".x b\n.y\n",
            "/etc/hosts.map: line 2: .y: not of the form KEY VALUE, separated by spaces",
        ),
        (".x b\n.y a\n.x a\n", "/etc/hosts.map: line 3: this key is already in line 1"),
    ] {
        let (mut config, places) = load();
        let findings = supply(&mut config, |_| Ok(content.into())).expect_err(content);
        let errors = places.errors(findings, &Text::of(TEXT, "site.toml"));
        let [mistake] = errors.mistakes() else { panic!("one mistake: {errors}") };
        assert_eq!((mistake.what.as_str(), mistake.line), (expected, 9));
    }
}

#[test]
fn keys_of_push_hubs_are_read_from_their_files() {
    let text = "[[listener]]\nbind = \"127.0.0.1:80\"\n\
        [push.a]\ntoken-keys = \"keys.json\"\ntoken-audience = \"app\"\ntoken-issuer = \"id\"\n\
        [push.b]\ntoken-keys = \"https://id.example/keys\"\ntoken-keys-ca = \"ca.pem\"\n";
    let mut loaded = parse_in_folder(text, "site.toml", "/etc").unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(supply(&mut loaded.config, |path| Ok(path.into())), Ok(()));
    let hubs = &loaded.config.push;
    let of_file = hubs[0].token_keys.as_ref().expect("keys");
    assert_eq!(&*of_file.content.0, b"/etc/keys.json");
    assert_eq!(
        (hubs[0].token_audience.join(" "), hubs[0].token_issuer.as_deref()),
        ("app".to_owned(), Some("id"))
    );
    let remote: Vec<_> = loaded.config.remote_keys().collect();
    assert_eq!((remote.len(), &*remote[0].authorities.0), (1, &b"/etc/ca.pem"[..]));
    let missing = supply(&mut loaded.config, |_| Err("no such file".to_owned()));
    let errors = loaded.places.errors(missing.expect_err("missing"), &Text::of(text, "site.toml"));
    let lines: Vec<_> = errors.mistakes().iter().map(|mistake| mistake.line).collect();
    assert_eq!(lines, [4, 9], "{errors}");
}
