//! A request as plain data.

use std::fmt;

use serde_json::Value;

/// The content type of every body (C-1).
pub const JSON: &str = "application/json";

/// A request with this header is the controller's, which gives a hybrid engine's slot to its rank or back
/// to the engine; without it, it is a client's.
pub const SWITCH_HEADER: &str = "x-robust-switch";

/// A method of HTTP that engines are asked with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// Asks without a body.
    Get,
    /// Asks with a body, or orders something.
    Post,
}

impl Method {
    /// The method as HTTP spells it.
    pub fn as_str(self) -> &'static str {
        match self {
            Method::Get => "GET",
            Method::Post => "POST",
        }
    }
}

/// A request that an engine is to be sent.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    /// The method.
    pub method: Method,
    /// The path, with its leading slash and without a query.
    pub path: &'static str,
    /// The pairs of the query, in order; neither side is escaped yet.
    pub query: Vec<(&'static str, String)>,
    /// The content type; none exactly when there is no body.
    pub content_type: Option<&'static str>,
    /// The body; empty when there is none.
    pub body: Vec<u8>,
}

impl Request {
    /// A question without a body.
    pub fn get(path: &'static str) -> Self {
        Self {
            method: Method::Get,
            path,
            query: Vec::new(),
            content_type: None,
            body: Vec::new(),
        }
    }

    /// An order without a body.
    pub fn post_empty(path: &'static str) -> Self {
        Self {
            method: Method::Post,
            ..Self::get(path)
        }
    }

    /// An order with a JSON body.
    pub fn post(path: &'static str, body: &Value) -> Self {
        Self {
            content_type: Some(JSON),
            body: body.to_string().into_bytes(),
            ..Self::post_empty(path)
        }
    }

    /// The same request with one more pair in its query.
    pub fn with_query(mut self, key: &'static str, value: impl Into<String>) -> Self {
        self.query.push((key, value.into()));
        self
    }

    /// The path with its query, escaped, as it stands in a request's first line.
    pub fn target(&self) -> String {
        let mut target = self.path.to_owned();
        for (number, (key, value)) in self.query.iter().enumerate() {
            target.push(if number == 0 { '?' } else { '&' });
            target.push_str(key);
            target.push('=');
            value.bytes().for_each(|byte| escape(byte, &mut target));
        }
        target
    }
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.method.as_str(), self.target())
    }
}

/// All but RFC 3986's unreserved characters are escaped.
fn escape(byte: u8, into: &mut String) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    match byte {
        b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
            into.push(char::from(byte));
        }
        _ => {
            into.push('%');
            into.push(char::from(HEX[usize::from(byte >> 4)]));
            into.push(char::from(HEX[usize::from(byte & 15)]));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_says_that_it_is_json_and_a_query_is_escaped() {
        let request = Request::post("/a", &serde_json::json!({"b": 1})).with_query("m", "x y&ä");
        assert_eq!(request.content_type, Some("application/json"));
        assert_eq!(request.to_string(), "POST /a?m=x%20y%26%C3%A4");
        assert_eq!(Request::get("/a").content_type, None);
    }
}
