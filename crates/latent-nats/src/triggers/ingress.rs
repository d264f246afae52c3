//! What is looked at in a message before its function is called: the media type that its publisher set, if any. Nothing else of its
//! headers is read (T-005).

use latent_node::VALUES_MEDIA_TYPE;

/// The media type that conflicts with what the function is given; `None` where there is none (T-006).
pub(crate) fn conflicting_media_type(headers: &[u8]) -> Option<String> {
    let lines = headers.split(|byte| *byte == b'\n').skip(1);
    let values = lines.filter_map(|line| {
        let colon = line.iter().position(|byte| *byte == b':')?;
        let (name, value) = (line.get(..colon)?, line.get(colon + 1..)?);
        name.eq_ignore_ascii_case(b"Content-Type").then(|| value.trim_ascii())
    });
    values.map(essence).find(|found| !found.eq_ignore_ascii_case(VALUES_MEDIA_TYPE.as_bytes())).map(told)
}

/// Without its parameters.
fn essence(value: &[u8]) -> &[u8] {
    value.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii()
}

fn told(value: &[u8]) -> String {
    value.iter().take(128).map(|byte| if byte.is_ascii_graphic() { char::from(*byte) } else { '?' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_media_type_that_is_set_and_another_is_a_conflict() {
        let block = |lines: &str| format!("NATS/1.0\r\n{lines}\r\n");
        let own = format!("Content-Type: {VALUES_MEDIA_TYPE}\r\n");
        let good = [
            String::new(),
            own.clone(),
            own.to_lowercase(),
            format!("content-type:{} ; v=1\r\n", VALUES_MEDIA_TYPE.to_uppercase()),
            "X-Content-Type: text/plain\r\nLatent-Budget: 1\r\n".to_owned(),
        ];
        for lines in good {
            assert_eq!(conflicting_media_type(block(&lines).as_bytes()), None, "{lines}");
        }
        let bad = [
            ("Content-Type: application/json\r\n".to_owned(), "application/json"),
            (format!("{own}Content-Type: text/plain; charset=utf-8\r\n"), "text/plain"),
            ("CONTENT-TYPE:\r\n".to_owned(), ""),
            ("Content-Type: \u{1b}[31m\r\n".to_owned(), "?[31m"),
        ];
        for (lines, told) in bad {
            assert_eq!(conflicting_media_type(block(&lines).as_bytes()).as_deref(), Some(told), "{lines}");
        }
        assert_eq!(conflicting_media_type(b""), None);
    }
}
