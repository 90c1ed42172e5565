//! The end of the program, whatever state its bridges are in.

use nix::sys::signal::Signal::{SIGINT, SIGTERM};

use super::{Trial, bridges};
use crate::lab::{Client, Hypervisor, Namespace};

pub(super) fn end_in_every_state(trial: &Trial) {
    let ways: [fn(&Hypervisor<'_>, &mut Client); 3] = [
        |_, client| drop(client.tell("hypervisor stop")),
        |hypervisor, _| hypervisor.signal(SIGTERM),
        |hypervisor, _| hypervisor.signal(SIGINT),
    ];
    let namespace = Namespace::new();
    for (number, start) in trial.starts.iter().enumerate() {
        let mut hypervisor = Hypervisor::start(&namespace);
        let mut client = hypervisor.client();
        start.iter().for_each(|command| drop(client.tell(command)));
        ways[number % ways.len()](&hypervisor, &mut client);
        assert_eq!(client.rest(), "", "after {start:?}");
        assert_eq!(hypervisor.end(), Some(0), "after {start:?}");
        namespace.run(|| trial.expect_nothing_left(start));
    }
}

#[test]
fn it_ends_well_in_every_state_of_a_bridge() {
    end_in_every_state(&bridges::TRIAL);
}
