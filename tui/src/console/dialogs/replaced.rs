//! What becomes of a dialog about a process that is gone.
use crate::console::act::Life;
use crate::console::job::Job;
use crate::console::screen::Effect;

/// Closes it: the process after it is not what the operator chose. Where several are chosen the daemon refuses those that
/// were replaced, and strikes the others.
pub fn unless_replaced(lives: &[Life], job: &Job) -> Vec<Effect> {
    let [life] = lives else { return Vec::new() };
    let same = job
        .roles()
        .iter()
        .any(|r| (&r.role, r.index, r.incarnation) == (&life.role, life.index, life.incarnation));
    if same {
        return Vec::new();
    }
    let name = crate::format::who(&life.role, life.index);
    let text = format!("{name} was replaced meanwhile; nothing done");
    vec![Effect::Close, Effect::refuse(text)]
}
