//! What becomes of a dialog about a process that is gone.
use crate::console::act::Life;
use crate::console::job::Job;
use crate::console::screen::Effect;

/// Closes it: the process after it is not what the operator chose.
pub fn unless_replaced(life: Option<&Life>, job: &Job) -> Vec<Effect> {
    let Some(life) = life else { return Vec::new() };
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
