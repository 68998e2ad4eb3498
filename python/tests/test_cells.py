"""The rules about miles' cells, told the time: no clock, no network, no miles."""

import unittest

from robustrl._cells import Action, Cell, Controller, Rules

WELL, FAILED, STOPPED, PENDING, UNKNOWN = "healthy", "failed", "stopped", "pending", "unknown"


def told(phase, health=None, reason=None):
    """A cell as miles writes it."""
    conditions = [{"type": "Allocated", "status": "True", "reason": None, "message": None, "lastTransitionTime": None}]
    if health is not None:
        conditions.append({"type": "Healthy", "status": health, "reason": reason, "message": None, "lastTransitionTime": None})
    return {"metadata": {"name": "actor-0", "labels": {}}, "spec": {"suspend": False}, "status": {"phase": phase, "conditions": conditions}}


class Play:
    """A controller, and a server that does what it is asked unless it refuses."""

    def __init__(self, **rules):
        self.rules = Rules(**{"settle_s": 5.0, **rules})
        self.controller = Controller(self.rules)
        self.now = 0.0
        self.cells = {"actor-0": WELL, "actor-1": WELL}
        self.refuses = None
        self.events, self.actions = [], []

    def step(self, seconds=1.0, **states):
        self.now += seconds
        self.cells.update({name.replace("_", "-"): state for name, state in states.items()})
        actions, events = self.controller.observe([Cell(name, state, f"is {state}") for name, state in self.cells.items()], self.now)
        self.events += events
        for action in actions:
            self.actions.append((self.now, action))
            if self.refuses is None:
                self.cells[action.cell] = STOPPED if action.suspend else PENDING
            self.events.append(self.controller.ended(action, self.now, self.refuses))
        return self

    def until(self, at, every=1.0):
        while self.now + every <= at:
            self.step(every)
        return self

    def kinds(self, cell="actor-1"):
        return [event.kind for event in self.events if event.cell == cell]

    def last(self, kind):
        return [event for event in self.events if event.kind == kind][-1]


class Reading(unittest.TestCase):
    def test_what_miles_says_is_read_as_one_state_with_its_evidence(self):
        for phase, health, reason, state in (
            ("Running", "True", None, WELL),
            ("Running", "Unknown", "HealthCheckUnknown", UNKNOWN),
            ("Running", None, None, UNKNOWN),
            ("Running", "False", "ExecutionErrored", FAILED),
            ("Suspended", None, None, STOPPED),
            ("Pending", None, None, PENDING),
        ):
            self.assertEqual(Cell.of(told(phase, health, reason)).state, state, phase)
        self.assertEqual(Cell.of(told("Running", "False", "HealthCheckFailed")).evidence, "phase Running, Healthy False (HealthCheckFailed)")

    def test_what_is_no_cell_of_this_api_is_an_error(self):
        with self.assertRaisesRegex(ValueError, "the phase 'Succeeded'; those of miles.io/v1"):
            Cell.of(told("Succeeded"))
        with self.assertRaisesRegex(ValueError, "has not the fields of miles.io/v1: KeyError: 'status'"):
            Cell.of({"metadata": {"name": "a"}})


class Healing(unittest.TestCase):
    def test_a_failed_cell_is_suspended_resumed_and_measured(self):
        play = Play().step().step(actor_1=FAILED)
        self.assertEqual(play.actions, [(2.0, Action("actor-1", suspend=True))])
        play.until(11)
        self.assertEqual(len(play.actions), 1, "its processes are given time to end")
        play.step()
        self.assertEqual(play.actions[1], (12.0, Action("actor-1", suspend=False)))
        # miles says that it is well while it initializes, and does not know once it takes part.
        play.until(15).step(actor_1=WELL).until(20).step(actor_1=UNKNOWN).until(25)
        self.assertEqual(play.kinds(), ["detected", "suspended", "resumed"])
        play.step(actor_1=WELL).until(40)
        self.assertEqual(play.kinds(), ["detected", "suspended", "resumed", "recovered"])
        recovered = play.last("recovered").figures
        self.assertEqual((recovered["detection_s"], recovered["restart_s"], recovered["recovery_s"]), (1.0, 10.0, 19.0))
        self.assertEqual(play.kinds("actor-0"), [])

    def test_a_cell_that_is_never_seen_to_begin_its_checks_recovers_later(self):
        play = Play(unseen_s=50.0).step().step(actor_1=FAILED).until(14).step(actor_1=WELL).until(64)
        self.assertEqual(play.kinds()[-1], "resumed")
        play.step()
        self.assertEqual((play.kinds()[-1], play.last("recovered").figures["recovery_s"]), ("recovered", 13.0))

    def test_a_cell_that_miles_stopped_itself_is_only_resumed(self):
        play = Play().step().step(actor_1=STOPPED).until(30)
        self.assertEqual(play.actions, [(12.0, Action("actor-1", suspend=False))])

    def test_a_cell_must_fail_for_as_long_as_the_rule_says(self):
        play = Play(failed_s=3.0).step().step(actor_1=FAILED).step().step(actor_1=WELL).step(actor_1=FAILED).until(7)
        self.assertEqual(play.actions, [])
        play.step()
        self.assertEqual([at for at, _ in play.actions], [8.0])
        self.assertEqual(play.last("detected").text, "is failed for 3.0 s")

    def test_unknown_health_is_no_fault_unless_it_is_asked_for(self):
        play = Play().step(actor_1=UNKNOWN).until(5000)
        self.assertEqual((play.actions, play.events), ([], []))
        play = Play(unknown_s=60.0).step(actor_1=UNKNOWN).until(61)
        self.assertEqual(play.actions, [(61.0, Action("actor-1", suspend=True))])

    def test_the_last_cell_that_runs_is_never_suspended_and_its_loss_is_said(self):
        play = Play().step().step(actor_0=FAILED, actor_1=FAILED).until(61)
        self.assertEqual((play.actions, play.controller.lost), ([], False))
        play.step()
        self.assertTrue(play.controller.lost)
        self.assertIn("no cell has run for 60.0 s", play.last("lost").text)
        self.assertIn("actor-0: is failed; actor-1: is failed", play.last("lost").text)

    def test_cells_that_did_not_run_yet_are_not_lost(self):
        play = Play()
        play.step(actor_0=PENDING, actor_1=PENDING).until(600)
        self.assertFalse(play.controller.lost)

    def test_two_that_fail_are_both_healed_by_the_third(self):
        play = Play()
        play.cells["actor-2"] = WELL
        play.step().step(actor_1=FAILED, actor_2=FAILED)
        self.assertEqual([action.cell for _, action in play.actions], ["actor-1", "actor-2"])

    def test_restarts_have_a_budget_within_a_window_and_growing_pauses(self):
        play = Play(budget=3, window_s=1000.0).step()
        for _ in range(3):
            play.step(actor_1=FAILED)
            while play.cells["actor-1"] != PENDING:
                play.step()
            play.step(actor_1=UNKNOWN).step(actor_1=WELL).until(play.now + 10)
        pauses = [after - before for (before, one), (after, other) in zip(play.actions, play.actions[1:]) if one.suspend and not other.suspend]
        self.assertEqual(pauses, [10.0, 20.0, 40.0])
        play.step(actor_1=FAILED).until(play.now + 2000)
        self.assertEqual(play.kinds()[-2:], ["exhausted", "suspended"])
        self.assertIn("restarted 3 times within 1000 s", play.last("exhausted").text)
        self.assertEqual(play.cells["actor-1"], STOPPED, "the others must not wait for it")
        # Somebody resumes it by hand, and much later it fails again: the window has passed.
        play.step(actor_1=PENDING).step(actor_1=WELL).step(actor_1=FAILED)
        self.assertEqual(play.kinds()[-3:], ["by_hand", "detected", "suspended"])

    def test_a_cell_that_fails_again_before_it_settled_is_a_new_incident(self):
        play = Play().step().step(actor_1=FAILED).until(13).step(actor_1=WELL).step().step(actor_1=STOPPED)
        self.assertEqual(play.kinds(), ["detected", "suspended", "resumed", "detected"])
        self.assertEqual(play.last("detected").figures["restarts_in_window"], 1)

    def test_an_answer_that_is_behind_what_was_asked_costs_no_second_restart(self):
        play = Play().step().step(actor_1=FAILED).until(12)
        self.assertEqual(play.cells["actor-1"], PENDING)
        play.step(actor_1=STOPPED).step(actor_1=STOPPED).step(actor_1=PENDING).step(actor_1=UNKNOWN).until(30)
        self.assertEqual(play.kinds(), ["detected", "suspended", "resumed", "recovered"])

    def test_a_server_that_refuses_is_asked_again_less_and_less_often(self):
        play = Play().step()
        play.refuses = "PATCH: 500: Failed to patch cell 'actor-1'"
        play.step(actor_1=FAILED).until(40)
        self.assertEqual([at for at, _ in play.actions], [2.0, 7.0, 17.0, 37.0])
        self.assertIn("did not suspend it: PATCH: 500", play.last("refused").text)
        play.refuses = None
        play.until(90)
        self.assertEqual(play.kinds()[-2:], ["suspended", "resumed"])

    def test_one_that_gets_well_before_anything_was_done_is_left_alone(self):
        play = Play().step()
        play.refuses = "no"
        play.step(actor_1=FAILED)
        play.refuses = None
        play.step(actor_1=WELL).until(30)
        self.assertEqual(play.kinds(), ["detected", "refused", "by_hand"])
        self.assertEqual(len(play.actions), 1)

    def test_held_cells_are_left_alone_and_pending_ones_are_told_of_once(self):
        play = Play(held=frozenset({"actor-1"}), pending_s=20.0).step(actor_1=STOPPED, actor_0=WELL).until(50)
        self.assertEqual((play.actions, play.events), ([], []))
        play = Play(pending_s=20.0).step(actor_1=PENDING).until(100)
        self.assertEqual((play.kinds(), play.actions), (["overdue"], []))
        self.assertIn("has waited 20.0 s for miles' next training step", play.last("overdue").text)

    def test_a_cell_that_the_server_does_not_name_any_more_is_forgotten(self):
        play = Play().step().step(actor_1=FAILED)
        del play.cells["actor-1"]
        play.step().until(30)
        self.assertEqual((play.kinds()[-1], len(play.actions)), ("gone", 1))

    def test_a_cell_that_somebody_else_resumed_and_that_failed_again_is_suspended_again(self):
        play = Play().step().step(actor_1=FAILED).step(actor_1=FAILED).until(40)
        self.assertEqual([action.suspend for _, action in play.actions], [True, True, False])


if __name__ == "__main__":
    unittest.main()
