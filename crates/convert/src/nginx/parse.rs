//! Parses nginx's files into directives.
//! In: text. Out: directives with their blocks, and lines with mistakes.
//! Limits: `DEPTH_MAX` nested blocks; deeper ones are read as if they were not nested.

/// The maximum nesting depth of blocks.
const DEPTH_MAX: usize = 16;

/// A directive.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Directive {
    pub(super) name: String,
    pub(super) args: Vec<String>,
    /// The line of its name.
    pub(super) line: usize,
    /// The directives in its braces; `None` if it ends with a semicolon.
    pub(super) block: Option<Vec<Directive>>,
}

impl Directive {
    /// The argument at `index`, or an empty text.
    pub(super) fn arg(&self, index: usize) -> &str {
        self.args.get(index).map_or("", String::as_str)
    }

    /// The directives in its braces.
    pub(super) fn inner(&self) -> &[Directive] {
        self.block.as_deref().unwrap_or_default()
    }
}

/// The directives of a string that begins at line `first`, and lines with a mistake and its description.
pub(super) fn parse(text: &str, first: usize) -> (Vec<Directive>, Vec<(usize, &'static str)>) {
    let mut mistakes = Vec::new();
    // The open blocks, each with its directive.
    let mut stack: Vec<Directive> = vec![Directive::default()];
    let mut words: Vec<(String, usize)> = Vec::new();
    let mut scanner = Scanner { rest: text, line: first };
    while let Some((token, line)) = scanner.next() {
        match token {
            Token::Word(word) => words.push((word, line)),
            Token::End => add(&mut stack, &mut words, None),
            Token::Open => {
                let is_code =
                    words.first().is_some_and(|(word, _)| word.ends_with("_by_lua_block"));
                if is_code {
                    scanner.skip_block();
                    add(&mut stack, &mut words, Some(Vec::new()));
                } else if stack.len() > DEPTH_MAX {
                    mistakes.push((line, "blocks are nested too deeply"));
                    add(&mut stack, &mut words, Some(Vec::new()));
                } else {
                    let mut directive = directive(&mut words);
                    directive.line = directive.line.max(1);
                    directive.block = Some(Vec::new());
                    stack.push(directive);
                }
            }
            Token::Close => {
                if !words.is_empty() {
                    mistakes.push((line, "the semicolon is missing"));
                    add(&mut stack, &mut words, None);
                }
                match stack.len() {
                    1 => mistakes.push((line, "a closing brace without an opening brace")),
                    _ => close(&mut stack),
                }
            }
        }
    }
    if !words.is_empty() {
        mistakes.push((words[0].1, "the semicolon is missing"));
        add(&mut stack, &mut words, None);
    }
    while stack.len() > 1 {
        mistakes.push((stack.last().map_or(0, |own| own.line), "the brace is not closed"));
        close(&mut stack);
    }
    (stack.pop().and_then(|root| root.block).unwrap_or_default(), mistakes)
}

/// The directive of `words`.
fn directive(words: &mut Vec<(String, usize)>) -> Directive {
    let mut words = words.drain(..);
    let (name, line) = words.next().unwrap_or_default();
    Directive { name, args: words.map(|(word, _)| word).collect(), line, block: None }
}

fn add(stack: &mut [Directive], words: &mut Vec<(String, usize)>, block: Option<Vec<Directive>>) {
    let mut own = directive(words);
    own.block = block;
    if let Some(open) = stack.last_mut()
        && !own.name.is_empty()
    {
        open.block.get_or_insert_default().push(own);
    }
}

fn close(stack: &mut Vec<Directive>) {
    if let Some(own) = stack.pop()
        && let Some(open) = stack.last_mut()
    {
        open.block.get_or_insert_default().push(own);
    }
}

enum Token {
    Word(String),
    /// A semicolon.
    End,
    Open,
    Close,
}

struct Scanner<'t> {
    rest: &'t str,
    line: usize,
}

impl Scanner<'_> {
    fn take(&mut self) -> Option<char> {
        let c = self.rest.chars().next()?;
        self.rest = &self.rest[c.len_utf8()..];
        self.line += usize::from(c == '\n');
        Some(c)
    }

    /// The next token, and its line.
    fn next(&mut self) -> Option<(Token, usize)> {
        loop {
            let c = self.rest.chars().next()?;
            match c {
                c if c.is_whitespace() => {
                    self.take();
                }
                '#' => {
                    while self.rest.chars().next().is_some_and(|c| c != '\n') {
                        self.take();
                    }
                }
                ';' | '{' | '}' => {
                    self.take();
                    let token = match c {
                        ';' => Token::End,
                        '{' => Token::Open,
                        _ => Token::Close,
                    };
                    return Some((token, self.line));
                }
                _ => {
                    let line = self.line;
                    return Some((Token::Word(self.word()), line));
                }
            }
        }
    }

    fn word(&mut self) -> String {
        let mut word = String::new();
        let first = self.rest.chars().next().unwrap_or_default();
        if first == '"' || first == '\'' {
            self.take();
            while let Some(c) = self.take() {
                match c {
                    c if c == first => break,
                    '\\' => self.escaped(&mut word),
                    c => word.push(c),
                }
            }
            return word;
        }
        while let Some(c) = self.rest.chars().next() {
            let is_variable = c == '{' && word.ends_with('$');
            match c {
                c if c.is_whitespace() => break,
                '{' if !is_variable => break,
                ';' => break,
                '}' if !is_open_variable(&word) => break,
                _ => {}
            }
            self.take();
            match c {
                '\\' => self.escaped(&mut word),
                c => word.push(c),
            }
        }
        word
    }

    /// The character after a backslash: nginx removes it before quotes and spaces, and keeps it in regular expressions such as
    /// `\.`.
    fn escaped(&mut self, word: &mut String) {
        match self.take() {
            Some(c) if "\"' ;{}\\".contains(c) => word.push(c),
            Some('n') => word.push('\n'),
            Some('r') => word.push('\r'),
            Some('t') => word.push('\t'),
            Some(c) => word.extend(['\\', c]),
            None => {}
        }
    }

    /// Skips to the end of a block of code.
    fn skip_block(&mut self) {
        let mut depth = 1;
        while let Some(c) = self.take() {
            match c {
                '{' => depth += 1,
                '}' => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                return;
            }
        }
    }
}

/// Whether `word` ends within `${name`.
fn is_open_variable(word: &str) -> bool {
    word.rfind("${").is_some_and(|at| !word[at..].contains('}'))
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn blocks_quotes_variables_and_comments_are_read() {
        let text =
            "http { # a { b\n map $x ${y} { default \"a;b\\n\"; ~^/a\\.b c; }\n}\nuser 'w w';";
        let (all, mistakes) = parse(text, 1);
        assert!(mistakes.is_empty());
        assert_eq!((all.len(), all[1].args.as_slice()), (2, &["w w".to_owned()][..]));
        let map = &all[0].inner()[0];
        assert_eq!((map.line, map.arg(1)), (2, "${y}"));
        assert_eq!((map.inner()[0].arg(0), map.inner()[1].name.as_str()), ("a;b\n", "~^/a\\.b"));
    }

    #[test]
    fn each_mistake_names_its_line() {
        for (text, line) in [("a {\n b", 2), ("a {\n", 1), ("}", 1), ("a {\n b }\n", 2)] {
            assert_eq!(parse(text, 1).1.first().map(|mistake| mistake.0), Some(line), "{text}");
        }
    }
}
