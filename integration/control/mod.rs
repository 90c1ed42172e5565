//! The control server: what arrives on its connections, in whatever pieces, from whomever, and how they end.

mod access;
mod clients;
mod ends;
mod lines;

use crate::lab::Client;

/// What `hypervisor version` is answered.
const VERSION: &str = "100-0.9.19";

/// Commands that are each answered in a way of its own, and the answers.
fn conversation() -> Vec<(String, Vec<String>)> {
    let rounds = (0..8).flat_map(|number| {
        [
            (format!("bridge create b{number}"), vec![format!("100-bridge 'b{number}' created")]),
            (format!("nosuch{number} x"), vec![format!("201-Unknown module 'nosuch{number}'")]),
            (
                format!("  bridge\tshow  \"b{number}\" # {number}"),
                vec![format!("101 bridge 'b{number}' is not running"), "100-OK".to_owned()],
            ),
            (
                format!("bridge rename b{number} é{number}"),
                vec![format!("100-bridge 'b{number}' renamed to 'é{number}'")],
            ),
            (format!("bridge start é{number}"), vec![format!("209-bridge 'é{number}' must have 2 NIOs to be started")]),
            (format!("bridge delete é{number}"), vec![format!("100-bridge 'é{number}' deleted")]),
        ]
    });
    rounds.collect()
}

/// The commands of a conversation as they are sent, each with `end` behind it.
fn script(conversation: &[(String, Vec<String>)], end: &str) -> Vec<u8> {
    conversation.iter().flat_map(|(command, _)| format!("{command}{end}").into_bytes()).collect()
}

/// The next replies are those of a conversation.
fn expect_replies(client: &mut Client, conversation: &[(String, Vec<String>)]) {
    for (command, expected) in conversation {
        assert_eq!(client.reply(), *expected, "{command}");
    }
}

/// The next reply is to the next command: none was lost, none doubled.
fn expect_in_step(client: &mut Client, what: &str) {
    assert_eq!(client.ask("hypervisor cmd_list in-step"), ["201-unknown module 'in-step'"], "{what}");
}
