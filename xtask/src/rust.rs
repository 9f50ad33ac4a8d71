//! Rust source as the checks see it: names, marks and comments, what encloses what, and what is for tests alone.
//!
//! This is no parser of the language. It knows what stands in comments and in quotes, which brackets belong together, where an item ends,
//! where functions begin and end, and which modules a file declares. Macros are not expanded: their text counts as it is written. It relies
//! on the source being one that compiles; of any other it says something, and does not panic.

use std::ops::Range;

/// What a token is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A name or a word of the language; a raw one stands without its `r#`.
    Name,
    /// A number with its unit.
    Number,
    /// A lifetime or a label, with its quote.
    Lifetime,
    /// A text, some bytes or one letter, with its quotes.
    Quoted,
    /// One sign, or `::`.
    Mark,
    /// A comment that documents nothing.
    Comment,
    /// A comment that documents what follows or what it stands in.
    Doc,
}

/// One piece of the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token<'a> {
    /// What kind of piece it is.
    pub kind: Kind,
    /// Its text as it is written.
    pub text: &'a str,
    /// The byte that it begins at.
    pub start: usize,
    /// The line that it begins in, from 1.
    pub line: usize,
}

impl Token<'_> {
    /// The line that it ends in, from 1.
    pub fn last_line(&self) -> usize {
        self.line + self.text.trim_end_matches('\n').matches('\n').count()
    }
}

/// All tokens of a text, comments among them.
pub fn tokens(text: &str) -> Vec<Token<'_>> {
    let (mut found, mut at, mut line) = (Vec::new(), 0, 1);
    while at < text.len() {
        let (kind, length) = next(&text[at..]);
        let whole = &text[at..at + length];
        if let Some(kind) = kind {
            let text = if kind == Kind::Name { whole.trim_start_matches("r#") } else { whole };
            found.push(Token { kind, text, start: at + whole.len() - text.len(), line });
        }
        line += whole.matches('\n').count();
        at += length;
    }
    found
}

fn is_of_name(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_'
}

/// What the rest of a text begins with, and its bytes; white space is nothing.
fn next(rest: &str) -> (Option<Kind>, usize) {
    let length_of = |of: fn(char) -> bool| rest.find(|letter| !of(letter)).unwrap_or(rest.len());
    let first = rest.chars().next().unwrap_or(' ');
    if first.is_whitespace() {
        return (None, length_of(char::is_whitespace));
    }
    if let Some((kind, length)) = comment(rest) {
        return (Some(kind), length);
    }
    if let Some(length) = quoted(rest) {
        return (Some(Kind::Quoted), length);
    }
    if let Some(name) = rest.strip_prefix('\'') {
        let length = name.find(|letter| !is_of_name(letter)).unwrap_or(name.len());
        return (Some(Kind::Lifetime), 1 + length);
    }
    if first.is_ascii_digit() {
        return (Some(Kind::Number), number(rest));
    }
    if let Some(name) = rest.strip_prefix("r#").filter(|name| name.starts_with(is_of_name)) {
        let length = name.find(|letter| !is_of_name(letter)).unwrap_or(name.len());
        return (Some(Kind::Name), 2 + length);
    }
    if is_of_name(first) {
        return (Some(Kind::Name), length_of(is_of_name));
    }
    (Some(Kind::Mark), if rest.starts_with("::") { 2 } else { first.len_utf8() })
}

fn comment(rest: &str) -> Option<(Kind, usize)> {
    if rest.starts_with("//") {
        let is_doc = rest.starts_with("//!") || (rest.starts_with("///") && !rest.starts_with("////"));
        return Some((if is_doc { Kind::Doc } else { Kind::Comment }, rest.find('\n').unwrap_or(rest.len())));
    }
    let inside = rest.strip_prefix("/*")?;
    let is_doc =
        inside.starts_with('!') || (inside.starts_with('*') && !["**", "*/"].iter().any(|no| inside.starts_with(no)));
    // They nest.
    let (mut depth, mut at) = (1, 0);
    while depth > 0 && at < inside.len() {
        let step = match inside.as_bytes()[at..] {
            [b'/', b'*', ..] => 1,
            [b'*', b'/', ..] => -1,
            _ => 0,
        };
        depth += step;
        at += if step == 0 { 1 } else { 2 };
    }
    Some((if is_doc { Kind::Doc } else { Kind::Comment }, 2 + at))
}

/// The bytes of a text, of bytes or of a letter in quotes; none where the rest begins with something else.
fn quoted(rest: &str) -> Option<usize> {
    let raw = ["br", "cr", "r"].iter().find_map(|mark| rest.strip_prefix(mark));
    if let Some(raw) = raw {
        let hashes = raw.len() - raw.trim_start_matches('#').len();
        if raw[hashes..].starts_with('"') {
            let begin = rest.len() - raw.len() + hashes + 1;
            let end = format!("\"{}", "#".repeat(hashes));
            return Some(rest[begin..].find(&end).map_or(rest.len(), |at| begin + at + end.len()));
        }
    }
    let plain = rest.strip_prefix(['b', 'c']).unwrap_or(rest);
    let mark = rest.len() - plain.len();
    if let Some(inside) = plain.strip_prefix('"') {
        let mut at = 0;
        while at < inside.len() && inside.as_bytes()[at] != b'"' {
            at += if inside.as_bytes()[at] == b'\\' { 2 } else { 1 };
        }
        return Some((mark + 1 + at + 1).min(rest.len()));
    }
    // A letter, and not a lifetime.
    let inside = plain.strip_prefix('\'').filter(|_| !rest.starts_with('c'))?;
    let letter = inside.chars().next().map_or(0, char::len_utf8);
    if inside.starts_with('\\') {
        let end = inside.get(2..)?.find('\'')?;
        return Some(mark + 1 + 2 + end + 1);
    }
    inside[letter..].starts_with('\'').then_some(mark + 1 + letter + 1)
}

fn number(rest: &str) -> usize {
    let digits = |rest: &str| rest.find(|letter| !is_of_name(letter)).unwrap_or(rest.len());
    let whole = digits(rest);
    match rest[whole..].strip_prefix('.') {
        Some(more) if more.starts_with(|letter: char| letter.is_ascii_digit()) => whole + 1 + digits(more),
        _ => whole,
    }
}

/// The text with blanks in place of comments and of what stands in quotes, byte by byte.
pub fn blanked(text: &str) -> String {
    let mut code = vec![b' '; text.len()];
    for token in tokens(text) {
        if !matches!(token.kind, Kind::Quoted | Kind::Comment | Kind::Doc) {
            code[token.start..token.start + token.text.len()].copy_from_slice(token.text.as_bytes());
        }
    }
    for (at, _) in text.match_indices('\n') {
        code[at] = b'\n';
    }
    String::from_utf8(code).unwrap_or_default()
}

/// A module that a file declares.
#[derive(Debug, PartialEq, Eq)]
pub struct Module<'a> {
    /// Its name behind those of the modules of this file that it stands in.
    pub path: Vec<&'a str>,
    /// The line of its `mod`.
    pub line: usize,
    /// The path that `#[path]` names.
    pub file: Option<&'a str>,
    /// It stands here; else it has a file of its own.
    pub is_here: bool,
    /// It, or what it stands in, is compiled for tests alone.
    pub for_tests: bool,
}

/// A function with a body.
#[derive(Debug, PartialEq, Eq)]
pub struct Function<'a> {
    /// Its name, without those of what it stands in.
    pub name: &'a str,
    /// The line of its `fn`.
    pub line: usize,
    /// The line of the brace that closes it.
    pub last_line: usize,
    /// It, or what it stands in, is compiled for tests alone.
    pub for_tests: bool,
}

impl Function<'_> {
    /// From its `fn` to the brace that closes it.
    pub fn lines(&self) -> usize {
        self.last_line - self.line + 1
    }
}

/// A file of Rust.
pub struct Source<'a> {
    /// Its tokens, comments left out.
    pub code: Vec<Token<'a>>,
    /// Its comments, in their order.
    pub comments: Vec<Token<'a>>,
    /// For each opening bracket of the code the one that closes it; for all else itself.
    close: Vec<usize>,
    /// The tokens that only tests compile.
    tests: Vec<Range<usize>>,
    /// The modules that stand in it, and the tokens of each.
    here: Vec<(&'a str, Range<usize>)>,
}

impl<'a> Source<'a> {
    /// The source of this text.
    pub fn of(text: &'a str) -> Source<'a> {
        let (comments, code): (Vec<_>, Vec<_>) =
            tokens(text).into_iter().partition(|token| matches!(token.kind, Kind::Comment | Kind::Doc));
        let close = closing(&code);
        let mut source = Source { code, comments, close, tests: Vec::new(), here: Vec::new() };
        source.tests = source.test_ranges();
        source.here = (0..source.code.len()).filter_map(|at| source.module_here(at)).collect();
        source
    }

    /// Whether a place of the code is this; nothing stands behind the end.
    pub fn is(&self, at: usize, text: &str) -> bool {
        self.text(at) == text
    }

    /// What is written at a place of the code. A text in quotes is never mistaken for code: its quotes belong to it.
    pub fn text(&self, at: usize) -> &'a str {
        self.code.get(at).map_or("", |token| token.text)
    }

    /// Whether a name stands at a place of the code.
    pub fn is_name(&self, at: usize) -> bool {
        self.code.get(at).is_some_and(|token| token.kind == Kind::Name)
    }

    /// Whether only tests compile what stands at a place of the code.
    pub fn is_for_tests(&self, at: usize) -> bool {
        self.tests.iter().any(|range| range.contains(&at))
    }

    /// The modules of this file that a place of the code stands in, the outermost first.
    pub fn modules_around(&self, at: usize) -> Vec<&'a str> {
        self.here.iter().filter(|(_, range)| range.contains(&at)).map(|(name, _)| *name).collect()
    }

    /// Where the elements begin between the bracket that opens there and the one that closes it, commas between them.
    pub fn elements(&self, open: usize) -> Vec<usize> {
        let end = self.close[open];
        let (mut found, mut at, mut is_begin) = (Vec::new(), open + 1, true);
        while at < end {
            if is_begin && !self.is(at, ",") {
                found.push(at);
            }
            is_begin = self.is(at, ",");
            at = self.close[at].max(at) + 1;
        }
        found
    }

    /// The tokens of the attributes that stand in it: what is between `#[` or `#![` and `]`.
    pub fn attributes(&self) -> impl Iterator<Item = Range<usize>> {
        (0..self.code.len()).filter_map(|at| self.attribute(at)).map(|(range, _)| range)
    }

    /// What is inside of an attribute that begins there, and whether it is an outer one.
    fn attribute(&self, at: usize) -> Option<(Range<usize>, bool)> {
        if !self.is(at, "#") {
            return None;
        }
        let open = if self.is(at + 1, "!") { at + 2 } else { at + 1 };
        self.is(open, "[").then(|| (open + 1..self.close[open], open == at + 1))
    }

    /// The modules that it declares, in their order.
    pub fn modules(&self) -> Vec<Module<'a>> {
        let (mut found, mut file, mut at) = (Vec::new(), None, 0);
        while at < self.code.len() {
            if let Some((inside, _)) = self.attribute(at) {
                if self.is(inside.start, "path") && self.is(inside.start + 1, "=") {
                    file = Some(self.text(inside.start + 2).trim_matches('"'));
                }
                at = inside.end;
            } else if self.is(at, "mod") && self.is_name(at + 1) && (self.is(at + 2, ";") || self.is(at + 2, "{")) {
                let mut path = self.modules_around(at);
                path.push(self.text(at + 1));
                let (is_here, for_tests) = (self.is(at + 2, "{"), self.is_for_tests(at));
                found.push(Module { path, line: self.code[at].line, file: file.take(), is_here, for_tests });
                at += 2;
            } else if self.is(at, "pub") {
                at = if self.is(at + 1, "(") { self.close[at + 1] } else { at };
            } else {
                file = None;
            }
            at += 1;
        }
        found
    }

    /// The functions that have bodies, in their order; also those inside of others.
    pub fn functions(&self) -> Vec<Function<'a>> {
        let mut found = Vec::new();
        for at in 0..self.code.len() {
            // A pointer to a function has no name; that of a macro's function begins with a mark.
            let name = if self.is(at + 1, "$") { at + 2 } else { at + 1 };
            if !self.is(at, "fn") || !self.is_name(name) {
                continue;
            }
            let mut body = name + 1;
            while body < self.code.len() && !["{", ";"].contains(&self.text(body)) {
                body = self.close[body].max(body) + 1;
            }
            if self.is(body, "{") {
                let (line, last_line) = (self.code[at].line, self.code[self.close[body]].line);
                found.push(Function { name: self.text(name), line, last_line, for_tests: self.is_for_tests(at) });
            }
        }
        found
    }

    fn module_here(&self, at: usize) -> Option<(&'a str, Range<usize>)> {
        // That of a macro has a name that begins with a mark.
        let name = if self.is(at + 1, "$") { at + 2 } else { at + 1 };
        let is_one = self.is(at, "mod") && self.is_name(name) && self.is(name + 1, "{");
        is_one.then(|| (self.text(name), name + 2..self.close[name + 1]))
    }

    fn test_ranges(&self) -> Vec<Range<usize>> {
        let (mut found, mut at) = (Vec::new(), 0);
        while at < self.code.len() {
            let Some((inside, is_outer)) = self.attribute(at) else {
                at += 1;
                continue;
            };
            let (begin, end) = (at, inside.end + 1);
            at = end;
            if self.is_only_for_tests(inside) {
                // An inner one is about all that the file has.
                at = if is_outer { self.end_of_item(end) + 1 } else { self.code.len() };
                found.push(begin..at);
            }
        }
        found
    }

    /// Whether an attribute keeps what it stands above from all but tests.
    fn is_only_for_tests(&self, inside: Range<usize>) -> bool {
        let is_test = inside.len() == 1 && self.is(inside.start, "test");
        is_test
            || (self.is(inside.start, "cfg") && self.elements(inside.start + 1).iter().all(|at| self.wants_test(*at)))
    }

    /// Whether the condition that begins there holds in tests alone.
    fn wants_test(&self, at: usize) -> bool {
        match self.text(at) {
            "test" => true,
            "all" => self.elements(at + 1).iter().any(|at| self.wants_test(*at)),
            "any" => self.elements(at + 1).iter().all(|at| self.wants_test(*at)),
            _ => false,
        }
    }

    /// The last token of what begins there: an item, a statement, a field or an arm.
    fn end_of_item(&self, mut at: usize) -> usize {
        while let Some((inside, true)) = self.attribute(at) {
            at = inside.end + 1;
        }
        if self.is(at, "pub") {
            at = if self.is(at + 1, "(") { self.close[at + 1] + 1 } else { at + 1 };
        }
        let word = self.text(at);
        let is_function = word == "const" && ["fn", "unsafe", "async", "extern"].contains(&self.text(at + 1));
        let needs_semicolon = ["use", "static", "let", "type", "const"].contains(&word) && !is_function;
        let has_commas = !needs_semicolon && !ITEMS.contains(&word);
        while at < self.code.len() {
            match self.text(at) {
                "{" if !needs_semicolon && (!has_commas || !self.goes_on(self.close[at] + 1)) => return self.close[at],
                ";" => return at,
                "," if has_commas => return at,
                "}" | ")" | "]" => return at - 1,
                _ => at = self.close[at].max(at) + 1,
            }
        }
        self.code.len() - 1
    }

    /// Whether what stands there belongs to the braces before it: the other half of an arm or of a choice.
    fn goes_on(&self, at: usize) -> bool {
        self.is(at, "else") || (self.is(at, "=") && self.is(at + 1, ">"))
    }
}

/// What items begin with whose commas do not end them.
const ITEMS: [&str; 12] =
    ["fn", "struct", "enum", "union", "impl", "mod", "trait", "unsafe", "async", "extern", "const", "macro_rules"];

/// For each opening bracket the one that closes it; for all else, and where none does, itself.
fn closing(code: &[Token<'_>]) -> Vec<usize> {
    let mut close: Vec<usize> = (0..code.len()).collect();
    let mut open = Vec::new();
    for (at, token) in code.iter().enumerate() {
        match token.text {
            "(" | "[" | "{" => open.push(at),
            ")" | "]" | "}" => {
                if let Some(begin) = open.pop() {
                    close[begin] = at;
                }
            }
            _ => {}
        }
    }
    close
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> Vec<(Kind, &str)> {
        tokens(text).into_iter().map(|token| (token.kind, token.text)).collect()
    }

    #[test]
    fn quotes_letters_and_lifetimes_are_told_apart() {
        use Kind::{Lifetime, Mark, Name, Number, Quoted};
        for (text, expected) in [
            ("\"a\\\"b\" c", vec![(Quoted, "\"a\\\"b\""), (Name, "c")]),
            ("r#\"a\"b\"# c", vec![(Quoted, "r#\"a\"b\"#"), (Name, "c")]),
            ("br\"\\\" b'\\'' c\"d\"", vec![(Quoted, "br\"\\\""), (Quoted, "b'\\''"), (Quoted, "c\"d\"")]),
            ("'a' '\\u{1f}' '\"' 'é'", vec![(Quoted, "'a'"), (Quoted, "'\\u{1f}'"), (Quoted, "'\"'"), (Quoted, "'é'")]),
            (
                "<'a> 'b: b'c'",
                vec![(Mark, "<"), (Lifetime, "'a"), (Mark, ">"), (Lifetime, "'b"), (Mark, ":"), (Quoted, "b'c'")],
            ),
            ("bar\"x\"", vec![(Name, "bar"), (Quoted, "\"x\"")]),
            ("r#type::b", vec![(Name, "type"), (Mark, "::"), (Name, "b")]),
            ("1_000u64 0x1f 1.5e3 1..2 x.0", {
                let numbers = [(Number, "1_000u64"), (Number, "0x1f"), (Number, "1.5e3"), (Number, "1")];
                let rest = [(Mark, "."), (Mark, "."), (Number, "2"), (Name, "x"), (Mark, "."), (Number, "0")];
                [&numbers[..], &rest].concat()
            }),
            ("\"open", vec![(Quoted, "\"open")]),
            ("'", vec![(Lifetime, "'")]),
        ] {
            assert_eq!(shown(text), expected, "{text}");
        }
    }

    #[test]
    fn comments_nest_and_say_whether_they_document() {
        use Kind::{Comment, Doc, Name};
        let text = "/// a\n//! b\n// c\n//// d\n/* e /* f */ \" */ x /** g */ /*! h */ /*** i */ /**/ y";
        let kinds: Vec<Kind> = tokens(text).iter().map(|token| token.kind).collect();
        assert_eq!(kinds, [Doc, Doc, Comment, Comment, Comment, Name, Doc, Doc, Comment, Comment, Name]);
        let lines: Vec<usize> = tokens("a\n/* b\n\n */ c\n\"d\n\" e").iter().map(|token| token.line).collect();
        assert_eq!(lines, [1, 2, 4, 5, 6]);
        assert_eq!(tokens("/* b\n\n */")[0].last_line(), 3);
    }

    #[test]
    fn blanks_stand_in_place_of_all_that_is_no_code() {
        let text = "a(\"b\\\"c\", 'd', r#\"e\"f\"#); // i\n/* j\n k */ l::<'m>(); é";
        let code = blanked(text);
        assert_eq!(code.len(), text.len());
        assert_eq!(code.split_whitespace().collect::<String>(), "a(,,);l::<'m>();é");
        assert_eq!(code.matches('\n').count(), 2);
    }

    #[test]
    fn what_only_tests_compile_is_known() {
        for (text, of_tests) in [
            ("#[cfg(test)]\nmod t { fn x() {} }\nfn y() {}", "t x"),
            ("#[cfg(all(test, unix))] use a::{x, b::{t}}; use y;", "a x b t"),
            ("#[cfg(any(test, feature = \"f\"))] fn y() {}", ""),
            ("#[cfg(not(test))] fn y() {}", ""),
            ("#[cfg(any(test, all(test, z)))] fn x() {} fn y() {}", "x"),
            ("#[test]\n#[ignore]\npub(crate) fn x<A, B>() where A: B { t } y", "x A B A B t"),
            ("struct S { #[cfg(test)] x: u8, y: u8 }", "x u8"),
            ("fn y() { #[cfg(test)] let x = S { t: 1 }; y }", "x S t"),
            ("fn y() { #[cfg(test)] { x; } y }", "x"),
            ("match y { #[cfg(test)] A { x } => { t } B => y }", "A x t"),
            ("f(#[cfg(test)] x)", "x"),
            ("#[cfg(test)] const X: A = A { x }; const fn y() {}", "X A A x"),
            ("#[cfg(test)] const fn x() {} y", "x"),
            ("#![cfg(test)]\nfn x() {}", "x"),
            ("#[cfg_attr(test, derive(Y))] struct Y;", ""),
        ] {
            let source = Source::of(text);
            let words = [
                "cfg", "test", "all", "unix", "any", "z", "ignore", "fn", "mod", "use", "pub", "crate", "let", "const",
                "where",
            ];
            let found = (0..source.code.len()).filter(|at| source.is_for_tests(*at) && source.is_name(*at));
            let found: Vec<&str> = found.map(|at| source.text(at)).filter(|text| !words.contains(text)).collect();
            assert_eq!(found.join(" "), of_tests, "{text}");
        }
    }

    #[test]
    fn functions_reach_from_their_word_to_the_brace_that_closes_them() {
        let text = "fn a(x: fn(u8)) -> [u8; { 4 }] {\n    let s = \"}\"; // }\n    fn b() {}\n}\ntrait T {\n    fn c();\n    fn d() {\n    }\n}\n\
                    #[cfg(test)]\nmod tests {\n    fn e() {\n    }\n}\nmacro_rules! m { ($n:ident) => { fn $n() {\n} } }\n";
        let source = Source::of(text);
        let found: Vec<_> = source.functions().iter().map(|f| (f.name, f.line, f.lines(), f.for_tests)).collect();
        let expected =
            [("a", 1, 4, false), ("b", 3, 1, false), ("d", 7, 2, false), ("e", 12, 2, true), ("n", 15, 2, false)];
        assert_eq!(found, expected);
    }

    #[test]
    fn modules_are_found_with_their_places() {
        let text = "mod a;\n#[path = \"x.rs\"]\npub(in crate::q) mod b;\n// mod c;\nmod d {\n    pub mod e;\n    #[cfg(test)]\n    mod f {\n        mod g;\n\
                    } }\n#[path = \"y.rs\"]\nfn h() { let s = \"mod i;\"; }\npub mod j;\n";
        let found: Vec<_> = Source::of(text)
            .modules()
            .into_iter()
            .map(|module| (module.path.join("::"), module.line, module.file, module.is_here, module.for_tests))
            .collect();
        let expected = [
            ("a", 1, None, false, false),
            ("b", 3, Some("x.rs"), false, false),
            ("d", 5, None, true, false),
            ("d::e", 6, None, false, false),
            ("d::f", 8, None, true, true),
            ("d::f::g", 9, None, false, true),
            ("j", 13, None, false, false),
        ];
        assert_eq!(
            found,
            expected.map(|(path, line, file, is_here, tests)| (path.to_string(), line, file, is_here, tests))
        );
    }
}
