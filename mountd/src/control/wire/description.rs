//! The interface as text, as tools and people read it.
//!
//! It must never say anything that isn't in the description.

use std::fmt::{self, Display, Write as _};

use zlink::idl::{Comment, CustomType, Field, Interface};

/// The interface in the language that Varlink describes interfaces in.
pub(crate) fn text(interface: &Interface<'_>) -> String {
    let mut text = String::new();
    // Nothing fails to be written into a string.
    let _ = write(&mut text, interface);
    text
}

fn write(text: &mut String, interface: &Interface<'_>) -> fmt::Result {
    comments(text, "", interface.comments())?;
    writeln!(text, "interface {}", interface.name())?;
    for custom in interface.custom_types() {
        match custom {
            CustomType::Object(object) => {
                heading(text, object.comments())?;
                write!(text, "type {} ", object.name())?;
                fields(text, object.fields())?;
            }
            CustomType::Enum(choice) => {
                heading(text, choice.comments())?;
                write!(text, "type {} ", choice.name())?;
                let variants = choice.variants();
                members(text, variants.map(|variant| (variant.comments(), variant.name())))?;
            }
        }
        text.push('\n');
    }
    for method in interface.methods() {
        heading(text, method.comments())?;
        write!(text, "method {}", method.name())?;
        fields(text, method.inputs())?;
        text.push_str(" -> ");
        fields(text, method.outputs())?;
        text.push('\n');
    }
    for error in interface.errors() {
        heading(text, error.comments())?;
        write!(text, "error {} ", error.name())?;
        fields(text, error.fields())?;
        text.push('\n');
    }
    Ok(())
}

fn heading<'a>(text: &mut String, words: impl Iterator<Item = &'a Comment<'a>>) -> fmt::Result {
    text.push('\n');
    comments(text, "", words)
}

fn comments<'a>(
    text: &mut String,
    indent: &str,
    words: impl Iterator<Item = &'a Comment<'a>>,
) -> fmt::Result {
    for comment in words {
        let line = format!("{indent}# {}", comment.text().trim());
        writeln!(text, "{}", line.trim_end())?;
    }
    Ok(())
}

fn fields<'a>(text: &mut String, fields: impl Iterator<Item = &'a Field<'a>>) -> fmt::Result {
    let member =
        |field: &'a Field<'a>| (field.comments(), format!("{}: {}", field.name(), field.ty()));
    members(text, fields.map(member))
}

/// What stands between parentheses, each member on a line of its own.
fn members<'a, C, M>(text: &mut String, members: impl Iterator<Item = (C, M)>) -> fmt::Result
where
    C: Iterator<Item = &'a Comment<'a>>,
    M: Display,
{
    text.push('(');
    let mut any = false;
    for (words, member) in members {
        text.push_str(if any { ",\n" } else { "\n" });
        any = true;
        comments(text, "  ", words)?;
        write!(text, "  {member}")?;
    }
    text.push_str(if any { "\n)" } else { ")" });
    Ok(())
}
