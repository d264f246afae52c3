//! The `authorization` block of a broker's configuration. No password is in it: each is a variable, and a broker does not start while one of
//! them is not set.

use std::fmt::Write as _;

use latent_bridge::nats_bus::Permission;
use serde_json::{Value, json};

use super::users::{BrokerUsers, User};

/// The block, with what an operator must know of it.
pub(super) fn text(broker: &BrokerUsers, config: &str) -> String {
    let variables = variables(&broker.users);
    let mut text = format!(
        "# The broker {} ({}), by {config}; printed by `latent broker permissions`.\n\
         # Each password is a variable of nats-server: set it in the server's environment, or at the head of its configuration, best as\n\
         # the bcrypt hash that `nats server passwd` makes: NAME: \"$2a$11$…\". The server does not start while one is not set.\n",
        broker.site.address, broker.site.server_name
    );
    for token in &broker.tokens {
        let _ = writeln!(text, "# NOT IN HERE: {token}. It has a token, which can have no permissions of its own; give it a user.");
    }
    text.push_str("authorization {\n  users: [\n");
    for (user, variable) in broker.users.iter().zip(&variables) {
        for purpose in &user.purposes {
            let _ = writeln!(text, "    # {purpose}");
        }
        if user.purposes.len() > 1 {
            text.push_str("    # (one name for all of these: whoever has it may do all of it; give each its own)\n");
        }
        let _ = writeln!(text, "    {{\n      user: {}\n      password: ${variable}\n      permissions: {{", quoted(&user.name));
        for (action, allowed) in [("publish", &user.permissions.publish), ("subscribe", &user.permissions.subscribe)] {
            text.push_str(&list(action, allowed));
        }
        text.push_str("      }\n    }\n");
    }
    text.push_str("  ]\n}\n");
    text
}

fn list(action: &str, allowed: &[Permission]) -> String {
    let mut text = format!("        {action}: {{ allow: [\n");
    for Permission { subject, purpose } in allowed {
        let _ = writeln!(text, "          {}  # {purpose}", quoted(subject));
    }
    text.push_str("        ] }\n");
    text
}

/// The same for machines.
pub(super) fn document(broker: &BrokerUsers) -> Value {
    let subjects = |of: &[Permission]| of.iter().map(|permission| permission.subject.clone()).collect::<Vec<_>>();
    let users: Vec<_> = broker
        .users
        .iter()
        .zip(variables(&broker.users))
        .map(|(user, variable)| {
            json!({
                "user": user.name,
                "purposes": user.purposes,
                "password_variable": variable,
                "publish": subjects(&user.permissions.publish),
                "subscribe": subjects(&user.permissions.subscribe),
            })
        })
        .collect();
    json!({ "address": broker.site.address.to_string(), "server_name": broker.site.server_name, "users": users, "tokens": broker.tokens })
}

/// The variable of each user's password; no two are the same.
fn variables(users: &[User]) -> Vec<String> {
    let mut variables: Vec<String> = Vec::new();
    for user in users {
        let word: String = user.name.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' }).collect();
        let (base, mut variable, mut number) = (format!("LATENT_{word}_PASSWORD"), format!("LATENT_{word}_PASSWORD"), 1);
        while variables.contains(&variable) {
            number += 1;
            variable = format!("{base}_{number}");
        }
        variables.push(variable);
    }
    variables
}

/// A text of the broker's configuration.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

#[cfg(test)]
mod tests {
    use latent_bridge::nats_bus::Permissions;

    use super::super::users::Credential;
    use super::*;

    fn user(name: &str) -> User {
        let permissions = Permissions::of_publisher(["orders"]);
        User { name: name.to_owned(), purposes: vec!["a test".to_owned()], credential: Credential::Operator, permissions }
    }

    #[test]
    fn each_user_has_a_variable_of_its_own() {
        let users = ["edge-1", "edge_1", "édge.1", "edge 1"].map(user);
        let expected = ["LATENT_EDGE_1_PASSWORD", "LATENT_EDGE_1_PASSWORD_2", "LATENT__DGE_1_PASSWORD", "LATENT_EDGE_1_PASSWORD_3"];
        assert_eq!(variables(&users), expected);
    }

    #[test]
    fn a_list_has_one_subject_a_line_with_its_purpose() {
        let permissions = Permissions::of_publisher(["a\"b"]);
        let expected = "        publish: { allow: [\n          \"a\\\"b\"  # publishing events\n        ] }\n";
        assert_eq!(list("publish", &permissions.publish), expected);
    }
}
