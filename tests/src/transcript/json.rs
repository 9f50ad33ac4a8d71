//! JSON as text that people compare: the order of fields as it was written, one placeholder for each value that varies, and the
//! shape of what varies as a whole.

use super::Names;
use std::collections::BTreeMap;

/// A document, in the order in which it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Json {
    /// A number, `true`, `false` or `null`, as it was written.
    Word(String),
    /// Text, without quotes and escapes.
    Text(String),
    /// An array, in its order.
    List(Vec<Json>),
    /// An object, its fields in the order in which they were written.
    Fields(Vec<(String, Json)>),
}

/// Lines are folded when they would be longer than this.
const LINE_MAX: usize = 120;

impl Json {
    /// Reads one document; none where it is not JSON, or has something behind it.
    pub fn parse(text: &str) -> Option<Json> {
        let mut rest = text.trim();
        let value = parse(&mut rest)?;
        rest.trim().is_empty().then_some(value)
    }

    /// The same with its fields by name, for bodies whose order nobody promises.
    pub fn sorted(self) -> Json {
        match self {
            Json::List(all) => Json::List(all.into_iter().map(Json::sorted).collect()),
            Json::Fields(fields) => {
                let mut fields: Vec<_> = fields.into_iter().map(|(name, value)| (name, value.sorted())).collect();
                fields.sort_by(|a, b| a.0.cmp(&b.0));
                Json::Fields(fields)
            }
            plain => plain,
        }
    }

    /// The value of a field.
    pub fn get(&self, name: &str) -> Option<&Json> {
        match self {
            Json::Fields(fields) => fields.iter().find(|(field, _)| field == name).map(|(_, value)| value),
            _ => None,
        }
    }

    /// The text that it is.
    pub fn text(&self) -> Option<&str> {
        match self {
            Json::Text(text) => Some(text),
            _ => None,
        }
    }

    /// With placeholders for what varies. `field`: the names of the two nearest fields that it is in.
    pub(super) fn settled(&self, names: &mut Names, field: &str) -> Json {
        match self {
            Json::Word(word) if word == "null" || word == "true" || word == "false" => Json::Word(word.clone()),
            Json::Word(word) if names.varies(field) || word.contains(['.', 'e', 'E']) => {
                let kind = if word.contains('.') { "<x>" } else { "<n>" };
                Json::Word(if names.varies(field) { "<n>" } else { kind }.to_owned())
            }
            Json::Word(word) => Json::Word(word.clone()),
            Json::Text(_) if names.varies(field) => Json::Text("<text>".to_owned()),
            Json::Text(text) => Json::Text(names.settle(text)),
            Json::List(all) => Json::List(all.iter().map(|value| value.settled(names, field)).collect()),
            Json::Fields(fields) => {
                let outer = field.rsplit('.').next().unwrap_or_default();
                let settled =
                    |(name, value): &(String, Json)| (name.clone(), value.settled(names, &format!("{outer}.{name}")));
                Json::Fields(fields.iter().map(settled).collect())
            }
        }
    }

    /// What kinds of values are where: `"number"`, `"text"` and so on in place of each, and one element in place of a list's.
    /// `open` names objects whose fields are data, such as a map by name of volume.
    pub fn shape(&self, open: &[&str]) -> Json {
        self.shape_in("", open)
    }

    fn shape_in(&self, field: &str, open: &[&str]) -> Json {
        let word = |word: &str| Json::Word(word.to_owned());
        match self {
            Json::Word(text) if text == "null" => word("null"),
            Json::Word(text) if text == "true" || text == "false" => word("boolean"),
            Json::Word(_) => word("number"),
            Json::Text(_) => word("text"),
            // Figures over a time: at which of its steps something was measured is a matter of the moment.
            Json::List(_) if ["avg", "min", "max"].contains(&field) => Json::List(vec![word("null or number")]),
            Json::List(all) => {
                let element = all.iter().map(|value| value.shape_in(field, open)).reduce(merged);
                Json::List(element.into_iter().collect())
            }
            Json::Fields(fields) if open.contains(&field) => {
                let value = fields.iter().map(|(_, value)| value.shape_in("", open)).reduce(merged);
                Json::Fields(value.into_iter().map(|value| ("<name>".to_owned(), value)).collect())
            }
            Json::Fields(fields) => {
                Json::Fields(fields.iter().map(|(name, value)| (name.clone(), value.shape_in(name, open))).collect())
            }
        }
    }

    /// On one line where that is short, else with a line for each field.
    pub fn pretty(&self) -> String {
        let mut text = String::new();
        self.write(0, &mut text);
        text
    }

    fn flat(&self) -> String {
        let all = |parts: Vec<String>| parts.join(", ");
        match self {
            Json::Word(word) => word.clone(),
            Json::Text(text) => serde_json::Value::from(text.as_str()).to_string(),
            Json::List(values) => format!("[{}]", all(values.iter().map(Json::flat).collect())),
            Json::Fields(fields) if fields.is_empty() => "{}".to_owned(),
            Json::Fields(fields) => {
                let parts = fields.iter().map(|(name, value)| format!("\"{name}\": {}", value.flat()));
                format!("{{ {} }}", all(parts.collect()))
            }
        }
    }

    fn write(&self, depth: usize, text: &mut String) {
        let flat = self.flat();
        if matches!(self, Json::Word(_) | Json::Text(_)) || flat.len() + 2 * depth <= LINE_MAX {
            return text.push_str(&flat);
        }
        let inner = "  ".repeat(depth + 1);
        let (open, close, parts): (_, _, Vec<(String, &Json)>) = match self {
            Json::Fields(fields) => {
                ('{', '}', fields.iter().map(|(name, value)| (format!("\"{name}\": "), value)).collect())
            }
            Json::List(values) => ('[', ']', values.iter().map(|value| (String::new(), value)).collect()),
            Json::Word(_) | Json::Text(_) => unreachable!("they are flat"),
        };
        text.push(open);
        for (at, (name, value)) in parts.iter().enumerate() {
            text.push_str(if at == 0 { "\n" } else { ",\n" });
            text.push_str(&inner);
            text.push_str(name);
            value.write(depth + 1, text);
        }
        text.push('\n');
        text.push_str(&"  ".repeat(depth));
        text.push(close);
    }
}

/// The shape of either of two shapes. Fields that only one of them has are marked by `?`.
pub fn merged(one: Json, other: Json) -> Json {
    match (one, other) {
        (one, other) if one == other => one,
        (Json::List(one), Json::List(other)) => {
            Json::List(one.into_iter().chain(other).reduce(merged).into_iter().collect())
        }
        (Json::Fields(one), Json::Fields(other)) => {
            let plain = |name: &str| name.trim_end_matches('?').to_owned();
            let mut all: Vec<String> = one.iter().map(|(name, _)| plain(name)).collect();
            for (at, (name, _)) in other.iter().enumerate() {
                // Behind the field that it follows there.
                if !all.contains(&plain(name)) {
                    let before = at.checked_sub(1).and_then(|at| all.iter().position(|n| *n == plain(&other[at].0)));
                    all.insert(before.map_or(0, |place| place + 1), plain(name));
                }
            }
            let [mut one, mut other] = [one, other].map(|fields| {
                fields.into_iter().map(|(name, value)| (plain(&name), (name, value))).collect::<BTreeMap<_, _>>()
            });
            let field = |name: String| match (one.remove(&name), other.remove(&name)) {
                (Some((first, a)), Some((second, b))) => {
                    let may_lack = first.ends_with('?') || second.ends_with('?');
                    (if may_lack { format!("{name}?") } else { name }, merged(a, b))
                }
                (Some((_, value)), None) | (None, Some((_, value))) => (format!("{name}?"), value),
                (None, None) => unreachable!("each name is of one of them"),
            };
            Json::Fields(all.into_iter().map(field).collect())
        }
        (Json::Word(one), Json::Word(other)) => {
            let mut kinds: Vec<&str> = one.split(" or ").chain(other.split(" or ")).collect();
            kinds.sort_unstable();
            kinds.dedup();
            Json::Word(kinds.join(" or "))
        }
        (one, other) => Json::Word(format!("{} or {}", one.flat(), other.flat())),
    }
}

fn parse(rest: &mut &str) -> Option<Json> {
    *rest = rest.trim_start();
    match rest.chars().next()? {
        '{' => {
            let mut fields = Vec::new();
            enclosed(rest, '}', |rest| {
                let name = string(rest)?;
                *rest = rest.trim_start().strip_prefix(':')?;
                fields.push((name, parse(rest)?));
                Some(())
            })?;
            Some(Json::Fields(fields))
        }
        '[' => {
            let mut values = Vec::new();
            enclosed(rest, ']', |rest| {
                values.push(parse(rest)?);
                Some(())
            })?;
            Some(Json::List(values))
        }
        '"' => string(rest).map(Json::Text),
        _ => {
            let end = rest.find(|c: char| c.is_whitespace() || ",]}".contains(c)).unwrap_or(rest.len());
            let (word, behind) = rest.split_at(end);
            *rest = behind;
            let is_word = serde_json::from_str::<serde_json::Value>(word).is_ok();
            is_word.then(|| Json::Word(word.to_owned()))
        }
    }
}

/// Elements with commas between them, from the opening character to the closing one.
fn enclosed(rest: &mut &str, close: char, mut element: impl FnMut(&mut &str) -> Option<()>) -> Option<()> {
    *rest = rest[1..].trim_start();
    if let Some(behind) = rest.strip_prefix(close) {
        *rest = behind;
        return Some(());
    }
    loop {
        *rest = rest.trim_start();
        element(rest)?;
        *rest = rest.trim_start();
        if let Some(behind) = rest.strip_prefix(close) {
            *rest = behind;
            return Some(());
        }
        *rest = rest.strip_prefix(',')?;
    }
}

fn string(rest: &mut &str) -> Option<String> {
    let mut escaped = false;
    let end = rest.strip_prefix('"')?.find(|c: char| {
        let ends = c == '"' && !escaped;
        escaped = c == '\\' && !escaped;
        ends
    })?;
    let (quoted, behind) = rest.split_at(end + 2);
    *rest = behind;
    serde_json::from_str(quoted).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_keep_the_order_of_their_fields() {
        let text = r#"{"b": [1, -2.5, "x\"y\\"], "a": {}, "c": [], "d": null}"#;
        let parsed = Json::parse(text).unwrap();
        assert_eq!(parsed.pretty(), r#"{ "b": [1, -2.5, "x\"y\\"], "a": {}, "c": [], "d": null }"#);
        assert_eq!(parsed.sorted().pretty(), r#"{ "a": {}, "b": [1, -2.5, "x\"y\\"], "c": [], "d": null }"#);
        for wrong in ["", "{", "[1,]", "{\"a\" 1}", "1 2", "nul", "\"a"] {
            assert_eq!(Json::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn shapes_of_several_documents_are_one() {
        let shape = |text: &str| Json::parse(text).unwrap().shape(&["by_name"]);
        let list = shape(r#"[{"a": 1, "c": "x"}, {"a": null, "b": true, "c": "y"}]"#);
        assert_eq!(list.pretty(), r#"[{ "a": null or number, "b?": boolean, "c": text }]"#);
        assert_eq!(shape(r#"{"by_name": {"vm1": 1, "vm2": 2}}"#).pretty(), r#"{ "by_name": { "<name>": number } }"#);
        assert_eq!(merged(shape("[]"), shape("[1]")).pretty(), "[number]");
        assert_eq!(merged(list.clone(), list.clone()), list);
    }
}
