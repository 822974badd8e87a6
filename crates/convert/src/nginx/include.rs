//! The output of `nginx -T`: several files, each after a comment with its path.
//! In: text. Out: the directives of the first file, with those of included files in place of `include`.
//! Limits: `DIRECTIVES_MAX` directives in all, `DEPTH_MAX` files that include each other.

use super::parse::{self, Directive};

/// How `nginx -T` begins the comment before a file.
const COMMENT: &str = "# configuration file ";
/// Maximum number of directives: a file may be included in many places.
const DIRECTIVES_MAX: usize = 200_000;
/// The longest chain of files that include each other.
const DEPTH_MAX: usize = 8;

/// A file: its path and its directives.
struct File {
    path: String,
    directives: Vec<Directive>,
}

/// The directives of the text, and lines with a mistake and its description.
pub(super) fn read(text: &str) -> (Vec<Directive>, Vec<(usize, &'static str)>) {
    let mut parts: Vec<(String, usize, String)> = vec![(String::new(), 1, String::new())];
    for (index, line) in text.split_inclusive('\n').enumerate() {
        if let Some(path) =
            line.strip_prefix(COMMENT).and_then(|rest| rest.trim_end().strip_suffix(':'))
        {
            parts.push((path.to_owned(), index + 2, String::new()));
        } else if let Some((_, _, part)) = parts.last_mut() {
            part.push_str(line);
        }
    }
    let mut mistakes = Vec::new();
    let mut files = Vec::new();
    for (path, first, part) in parts {
        let (directives, own) = parse::parse(&part, first);
        mistakes.extend(own);
        files.push(File { path, directives });
    }
    if files.len() == 1 {
        return (files.pop().map(|file| file.directives).unwrap_or_default(), mistakes);
    }
    // The lines before the first comment belong to no file.
    let main = usize::from(files.first().is_some_and(|file| file.directives.is_empty()));
    let mut left = DIRECTIVES_MAX;
    let first = files.get(main).map(|file| file.directives.as_slice()).unwrap_or_default();
    let all = expand(first, &files, 0, &mut left);
    if left == 0 {
        mistakes.push((0, "the included files have too many directives"));
    }
    (all, mistakes)
}

/// `directives` with the files that they include.
fn expand(
    directives: &[Directive],
    files: &[File],
    depth: usize,
    left: &mut usize,
) -> Vec<Directive> {
    let mut all = Vec::new();
    for directive in directives {
        if *left == 0 {
            break;
        }
        *left -= 1;
        if directive.name == "include" && depth < DEPTH_MAX {
            // A pattern may match no file.
            let mut is_found = directive.arg(0).contains('*');
            for file in files.iter().filter(|file| fits(directive.arg(0), &file.path)) {
                is_found = true;
                all.extend(expand(&file.directives, files, depth + 1, left));
            }
            if is_found {
                continue;
            }
        }
        let Directive { name, args, line, block } = directive;
        let block = block.as_ref().map(|block| expand(block, files, depth, left));
        all.push(Directive { name: name.clone(), args: args.clone(), line: *line, block });
    }
    all
}

/// Whether `path` fits the pattern of an `include`; a relative one starts from a folder that is not known here.
fn fits(pattern: &str, path: &str) -> bool {
    if pattern.is_empty() || path.is_empty() {
        return false;
    }
    if pattern.starts_with('/') {
        return is_match(pattern, path);
    }
    let ends = path.match_indices('/').map(|(at, _)| &path[at + 1..]);
    ends.clone().count() < 64 && ends.into_iter().any(|end| is_match(pattern, end))
}

/// Whether `text` matches a pattern in which `*` matches characters other than a slash.
fn is_match(pattern: &str, text: &str) -> bool {
    let mut patterns = pattern.split('/');
    let mut texts = text.split('/');
    loop {
        match (patterns.next(), texts.next()) {
            (None, None) => return true,
            (Some(pattern), Some(text)) if is_name_match(pattern, text) => {}
            _ => return false,
        }
    }
}

fn is_name_match(pattern: &str, name: &str) -> bool {
    let Some((begin, rest)) = pattern.split_once('*') else { return pattern == name };
    let Some(mut name) = name.strip_prefix(begin) else { return false };
    let mut parts: Vec<&str> = rest.split('*').collect();
    let end = parts.pop().unwrap_or_default();
    for part in parts {
        let Some(at) = name.find(part) else { return false };
        name = &name[at + part.len()..];
    }
    name.ends_with(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn included_files_take_the_place_of_their_directive() {
        let text = "# configuration file /etc/nginx/nginx.conf:\nhttp {\n include conf.d/*.conf;\n include none;\n}\n\
                    # configuration file /etc/nginx/conf.d/a.conf:\nserver {\n include /etc/nginx/tls.conf;\n}\n\
                    # configuration file /etc/nginx/tls.conf:\nssl_protocols TLSv1.3;\n";
        let (all, mistakes) = read(text);
        assert!(mistakes.is_empty());
        let names: Vec<_> =
            all[0].inner().iter().map(|own| (own.name.as_str(), own.line)).collect();
        assert_eq!(names, [("server", 7), ("include", 4)]);
        assert_eq!(all[0].inner()[0].inner()[0].line, 11);
    }

    #[test]
    fn files_that_include_each_other_are_bounded() {
        let part = |name: &str| {
            format!("# configuration file /{name}:\n{}", "include /a; include /b;\n".repeat(20))
        };
        let (all, mistakes) = read(&(part("a") + &part("b")));
        assert!(all.len() <= DIRECTIVES_MAX && !mistakes.is_empty());
    }

    #[test]
    fn patterns_match_whole_names() {
        for (pattern, path, expected) in [
            ("/etc/nginx/conf.d/*.conf", "/etc/nginx/conf.d/a.conf", true),
            ("/etc/nginx/*", "/etc/nginx/conf.d/a.conf", false),
            ("sites-enabled/*", "/etc/nginx/sites-enabled/default", true),
            ("mime.types", "/etc/nginx/mime.types", true),
            ("types", "/etc/nginx/mime.types", false),
            ("a*b*c", "/x/aXbYc", true),
            ("a*b*c", "/x/aXcYb", false),
        ] {
            assert_eq!(fits(pattern, path), expected, "{pattern} {path}");
        }
    }
}
