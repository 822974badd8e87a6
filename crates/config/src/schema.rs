//! JSON Schema (draft 2020-12) of the file for editors, generated from the table of settings.
//! In: `keys::FILE`. Out: one JSON value.
//! Invariant: a file that the schema rejects is also rejected by `parse`; `parse` checks more.

use serde_json::{Map, Value, json};

use crate::keys::{FILE, Key, Preset, Section, Shape};
use crate::words::{ActionKey, Keyword as _};

/// The schema. Each setting has its description, its default and the reason for the default.
#[must_use]
pub fn schema() -> Value {
    let mut root = Map::new();
    root.insert("$schema".to_owned(), json!("https://json-schema.org/draft/2020-12/schema"));
    root.insert("title".to_owned(), json!("Tidegate configuration"));
    if let Value::Object(file) = of_section(&FILE) {
        root.extend(file);
    }
    Value::Object(root)
}

fn of_section(section: &Section) -> Value {
    let properties: Map<String, Value> =
        section.keys.iter().map(|key| (key.name.to_owned(), of_key(key))).collect();
    let required: Vec<&str> = section
        .keys
        .iter()
        .filter(|key| matches!(key.preset, Preset::Required))
        .map(|key| key.name)
        .collect();
    let mut table = json!({
        "type": "object",
        "description": section.about,
        "properties": properties,
        "additionalProperties": false,
    });
    if !required.is_empty() {
        table["required"] = json!(required);
    }
    if section.path == "[[route]]" {
        // `split` may take the place of `proxy`, and may occur together with it.
        let required = |action: &&str| match ActionKey::from_word(action) {
            Some(ActionKey::Proxy) => {
                json!({ "anyOf": [{ "required": [action] }, { "required": ["split"] }] })
            }
            _ => json!({ "required": [action] }),
        };
        table["oneOf"] = ActionKey::WORDS.iter().map(required).collect();
    }
    table
}

fn of_key(key: &Key) -> Value {
    let mut value = of_shape(&key.shape);
    let description = match key.reason {
        "" => key.about.to_owned(),
        reason => format!("{} Reason for the default: {reason}", key.about),
    };
    value["description"] = json!(description);
    if let Preset::Value(text) = key.preset {
        value["default"] = default_of(text);
    }
    value
}

/// Converts a default of the table, which is a TOML value, to JSON.
fn default_of(text: &str) -> Value {
    let row = format!("v = {text}").parse::<toml::Table>().ok();
    row.and_then(|row| serde_json::to_value(row.get("v")?).ok()).unwrap_or(Value::Null)
}

fn of_shape(shape: &Shape) -> Value {
    match shape {
        Shape::Boolean => json!({ "type": "boolean" }),
        Shape::True => json!({ "const": true }),
        Shape::Text(form) => json!({ "type": "string", "title": form }),
        Shape::Word(words) | Shape::Name(words) => json!({ "enum": words }),
        Shape::NoNumber(word) => json!({ "enum": [word] }),
        Shape::Number(min, max) => json!({ "type": "integer", "minimum": min, "maximum": max }),
        Shape::Duration(..) => json!({ "type": "string", "pattern": "^[0-9]+(ms|s|m|h)$" }),
        Shape::Size(..) => json!({ "type": "string", "pattern": "^[0-9]+(B|KiB|MiB|GiB)$" }),
        Shape::OneOf(shapes) => {
            json!({ "anyOf": shapes.iter().map(of_shape).collect::<Vec<_>>() })
        }
        Shape::List(shape) => json!({ "type": "array", "items": of_shape(shape) }),
        Shape::Fields(shape) => {
            json!({ "type": "object", "additionalProperties": of_shape(shape) })
        }
        Shape::Table(section) => of_section(section),
        Shape::Rows(section) => json!({ "type": "array", "items": of_section(section) }),
        Shape::Named(section) => {
            json!({ "type": "object", "additionalProperties": of_section(section) })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schema_contains_every_setting_with_its_default() {
        let schema = schema();
        let listener = &schema["properties"]["listener"]["items"]["properties"];
        assert_eq!(listener["timeouts"]["properties"]["head"]["default"], "10s");
        assert_eq!(listener["backlog"]["default"], 4096);
        assert_eq!(listener["trusted"]["default"], json!([]));
        let pool = &schema["properties"]["pool"]["additionalProperties"];
        assert_eq!(pool["required"], json!(["servers"]));
        let text = schema.to_string();
        for section in crate::keys::sections() {
            for key in section.keys {
                assert!(text.contains(&format!("{:?}:", key.name)), "{}", key.name);
                if let Preset::Value(default) = key.preset {
                    assert_ne!(default_of(default), Value::Null, "{}", key.name);
                }
            }
        }
    }
}
