//! What a server says about its routes: every place that a caller fills in. A route that is added is found here by itself.

use serde_json::{Map, Value, json};

use super::wire::{Request, escaped};

/// How deep bodies are looked into.
const DEPTH: usize = 6;

pub(crate) struct Description {
    document: Value,
}

/// One route.
#[derive(Debug)]
pub(crate) struct Operation {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) parameters: Vec<Parameter>,
    /// A body of JSON that is as it should be.
    pub(crate) body: Option<Value>,
    /// Where something stands in such a body, or could.
    pub(crate) places: Vec<Vec<String>>,
    /// It takes bodies of another type, too.
    pub(crate) media_types: Vec<String>,
}

#[derive(Debug)]
pub(crate) struct Parameter {
    pub(crate) name: String,
    pub(crate) place: String,
    pub(crate) value: String,
    /// It has a value in requests that are as they should be.
    required: bool,
}

/// Names and what they are on this server: ids of what is there.
pub(crate) type Known = Map<String, Value>;

impl Description {
    pub(crate) fn new(document: Value) -> Description {
        Description { document }
    }

    pub(crate) fn operations(&self, known: &Known) -> Vec<Operation> {
        let paths = self.document["paths"].as_object().unwrap();
        let operations = paths.iter().flat_map(|(path, methods)| {
            let methods =
                methods.as_object().unwrap().iter().filter(|(_, operation)| operation["responses"].is_object());
            methods.map(move |(method, operation)| self.operation(method, path, operation, known))
        });
        operations.collect()
    }

    fn operation(&self, method: &str, path: &str, operation: &Value, known: &Known) -> Operation {
        let parameters = operation["parameters"].as_array().map(Vec::as_slice).unwrap_or_default();
        let content = operation["requestBody"]["content"].as_object();
        let schema = content.and_then(|content| content.get("application/json")).map(|json| &json["schema"]);
        let mut places = Vec::new();
        if let Some(schema) = schema {
            self.places(schema, &mut Vec::new(), &mut places);
        }
        let others = content.into_iter().flat_map(Map::keys).filter(|kind| *kind != "application/json");
        Operation {
            method: method.to_uppercase(),
            path: path.to_owned(),
            parameters: parameters.iter().map(|parameter| self.parameter(parameter, known)).collect(),
            body: schema.map(|schema| self.example(schema, "", known, 0)),
            places,
            media_types: others.cloned().collect(),
        }
    }

    fn parameter(&self, parameter: &Value, known: &Known) -> Parameter {
        let name = parameter["name"].as_str().unwrap();
        let place = parameter["in"].as_str().unwrap();
        let example = match &parameter["example"] {
            Value::Null => self.example(&parameter["schema"], name, known, 0),
            example => known.get(name).unwrap_or(example).clone(),
        };
        let value = example.as_str().map_or_else(|| example.to_string(), ToOwned::to_owned);
        Parameter { name: name.to_owned(), place: place.to_owned(), value, required: place == "path" }
    }

    /// Follows references; of several forms, the first that is something.
    fn resolved<'a>(&'a self, schema: &'a Value) -> &'a Value {
        if let Some(reference) = schema["$ref"].as_str() {
            return self.resolved(self.document.pointer(&reference[1..]).unwrap());
        }
        match self.forms(schema).first() {
            Some(form) => self.resolved(form),
            None => schema,
        }
    }

    /// Forms that a value may have, other than none.
    fn forms<'a>(&self, schema: &'a Value) -> Vec<&'a Value> {
        let forms = ["oneOf", "anyOf", "allOf"].iter().filter_map(|word| schema[word].as_array()).flatten();
        forms.filter(|form| form["type"] != "null").collect()
    }

    /// A value that is as it should be.
    fn example(&self, schema: &Value, name: &str, known: &Known, depth: usize) -> Value {
        if let Some(value) = known.get(name) {
            return value.clone();
        }
        let schema = self.resolved(schema);
        let kind = match &schema["type"] {
            Value::Array(kinds) => kinds.first().and_then(Value::as_str).unwrap_or_default(),
            kind => kind.as_str().unwrap_or_default(),
        };
        if !schema["example"].is_null() && name != "document" {
            let mut example = schema["example"].clone();
            if let Some(fields) = example.as_object_mut() {
                for (field, value) in fields.iter_mut().filter(|(field, _)| known.contains_key(*field)) {
                    *value = known[field].clone();
                }
            }
            return example;
        }
        match kind {
            "object" => {
                let required = schema["required"].as_array().map(Vec::as_slice).unwrap_or_default();
                let fields = required.iter().filter_map(Value::as_str);
                let value = |field: &str| self.example(&schema["properties"][field], field, known, depth + 1);
                Value::Object(fields.map(|field| (field.to_owned(), value(field))).collect())
            }
            "array" if depth < DEPTH => json!([self.example(&schema["items"], "", known, depth + 1)]),
            "array" => json!([]),
            "integer" | "number" => json!(schema["minimum"].as_i64().unwrap_or(1).max(1)),
            "boolean" => json!(true),
            "string" if schema["enum"].is_array() => schema["enum"][0].clone(),
            "string" if schema["format"] == "uuid" => json!("00000000-0000-0000-0000-000000000000"),
            "string" if schema["format"] == "date-time" => json!("2026-01-01T00:00:00Z"),
            "string" => json!("hello"),
            _ => json!({}),
        }
    }

    fn places(&self, schema: &Value, at: &mut Vec<String>, places: &mut Vec<Vec<String>>) {
        if at.len() > DEPTH {
            return;
        }
        let forms = self.forms(schema);
        for form in forms {
            self.places(form, at, places);
        }
        if let Some(reference) = schema["$ref"].as_str() {
            return self.places(self.document.pointer(&reference[1..]).unwrap(), at, places);
        }
        for (field, value) in schema["properties"].as_object().into_iter().flatten() {
            at.push(field.clone());
            places.push(at.clone());
            self.places(value, at, places);
            at.pop();
        }
        if schema["items"].is_object() {
            at.push("0".to_owned());
            places.push(at.clone());
            self.places(&schema["items"], at, places);
            at.pop();
        }
    }
}

impl Operation {
    pub(crate) fn name(&self) -> String {
        format!("{} {}", self.method, self.path)
    }

    /// A request as it should be.
    pub(crate) fn request(&self) -> Request {
        self.request_with(&|parameter| parameter.required.then(|| parameter.value.clone().into_bytes()))
    }

    /// A request in which one parameter has this value.
    pub(crate) fn with(&self, name: &str, value: &[u8]) -> Request {
        self.request_with(&|parameter| match parameter.name == name {
            true => Some(value.to_vec()),
            false => parameter.required.then(|| parameter.value.clone().into_bytes()),
        })
    }

    fn request_with(&self, value: &dyn Fn(&Parameter) -> Option<Vec<u8>>) -> Request {
        let (mut target, mut query, mut headers) = (self.path.clone(), Vec::new(), Vec::new());
        for parameter in &self.parameters {
            let Some(value) = value(parameter) else { continue };
            match &*parameter.place {
                "path" => target = target.replace(&format!("{{{}}}", parameter.name), &escaped(&value)),
                "query" => query.push(format!("{}={}", parameter.name, escaped(&value))),
                _ => headers.push((parameter.name.clone(), value)),
            }
        }
        if !query.is_empty() {
            target = format!("{target}?{}", query.join("&"));
        }
        let request = Request { headers, ..Request::new(&self.method, target) };
        match (&self.body, self.media_types.first()) {
            (Some(body), _) => request.json(body.to_string()),
            (None, Some(media_type)) => request.body(media_type, "content"),
            (None, None) => request,
        }
    }

    /// A body in which this text stands at a place.
    pub(crate) fn body_with(&self, place: &[String], text: &[u8]) -> Vec<u8> {
        filled(self.body.as_ref().unwrap(), place, text)
    }
}

/// JSON with a text of one's own at a place, which need not be JSON.
pub(crate) fn filled(value: &Value, place: &[String], text: &[u8]) -> Vec<u8> {
    const MARK: &str = "here stands something else";
    let mut value = value.clone();
    let mut at = &mut value;
    for step in place {
        at = match (step.parse::<usize>(), &mut *at) {
            (Ok(_), Value::Array(items)) => {
                if items.is_empty() {
                    items.push(Value::Null);
                }
                &mut items[0]
            }
            (Ok(_), other) => {
                *other = json!([null]);
                &mut other[0]
            }
            (Err(_), other) => {
                if !other.is_object() {
                    *other = json!({});
                }
                &mut other[step]
            }
        };
    }
    *at = json!(MARK);
    let written = value.to_string();
    let (before, after) = written.split_once(&format!("\"{MARK}\"")).unwrap();
    [before.as_bytes(), text, after.as_bytes()].concat()
}
