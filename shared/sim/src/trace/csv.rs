//! One line of a table whose fields have a character between them (RFC 4180 but for line breaks in fields).
//! It is read here because an error shall name the character's place, which readers of whole files do not keep.

/// A field and the place where it begins, in characters from 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Field {
    pub column: usize,
    pub text: String,
}

/// The fields of a line, or the place of what cannot be read and why.
pub(super) fn fields(line: &str, delimiter: char) -> Result<Vec<Field>, (usize, &'static str)> {
    let mut fields = Vec::new();
    let mut chars = line.chars().zip(1..).peekable();
    let mut column = 1;
    loop {
        let quoted = chars.next_if(|(c, _)| *c == '"').is_some();
        let mut text = String::new();
        let mut open = quoted;
        let end = loop {
            match chars.next() {
                None if open => return Err((column, "a quoted field does not end in its line")),
                None => break None,
                Some(('"', _)) if open => match chars.next_if(|(c, _)| *c == '"') {
                    Some(_) => text.push('"'),
                    None => open = false,
                },
                Some((c, at)) if c == delimiter && !open => break Some(at),
                Some((_, at)) if quoted && !open => {
                    return Err((at, "something follows the end of a quoted field"));
                }
                Some((c, _)) => text.push(c),
            }
        };
        // Blanks around an unquoted field are not of it.
        let text = match quoted {
            true => text,
            false => text.trim().to_owned(),
        };
        fields.push(Field { column, text });
        match end {
            Some(at) => column = at + 1,
            None => return Ok(fields),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(line: &str, delimiter: char) -> Vec<(usize, String)> {
        let all = fields(line, delimiter).unwrap_or_default();
        all.into_iter().map(|f| (f.column, f.text)).collect()
    }

    #[test]
    fn fields_have_their_text_and_the_place_where_they_begin() {
        let of = |all: &[(usize, &str)]| -> Vec<(usize, String)> {
            all.iter().map(|(at, t)| (*at, (*t).to_owned())).collect()
        };
        assert_eq!(texts("a,bc,", ','), of(&[(1, "a"), (3, "bc"), (6, "")]));
        assert_eq!(texts("é; b ;c", ';'), of(&[(1, "é"), (3, "b"), (7, "c")]));
        let quoted = of(&[(1, "a,b"), (7, "say \"so\"")]);
        assert_eq!(texts("\"a,b\",\"say \"\"so\"\"\"", ','), quoted);
    }

    #[test]
    fn what_is_no_field_is_told_with_its_place() {
        assert_eq!(fields("a,\"b", ',').map_err(|(at, _)| at), Err(3));
        assert_eq!(fields("\"a\"b,c", ',').map_err(|(at, _)| at), Err(4));
    }
}
