"""Integrates one batch from charge to harvest, piece by piece, with at most one fault.

A piece ends when the recipe or a fault changes the equations: glucose used up, feed started, onset of the fault,
planned feed complete (harvest). Samples are taken every ten minutes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from streamad.errors import StreamadError
from streamad.simulation.faults import Injection
from streamad.simulation.plant import FEED_MAX_L_H, Y_BIOMASS_OXIDATIVE, Fermenter, Plan, Readings, State, Upset

SAMPLES_PER_HOUR = 6
MAX_HOURS = 27.0
_BATCH_PHASE_MAX_H = 14.0
_GLUCOSE_USED_UP_G_L = 0.1
_GROWTH_H = 0.29  # of the batch phase, for the planned duration

# The channels of the control loops, in the order of `Readings`.
LOOP_CHANNELS = (0, 1, 2)


@dataclass(frozen=True, slots=True)
class Trajectory:
    """The true course of a batch: hours [n], state [n, 14], channel values without sensor noise [n, 9]."""

    hours: NDArray[np.float64]
    states: NDArray[np.float64]
    signals: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class LoopFault:
    """A false reading in a loop: `error` [n] per sample is added; with `held_noise` the reading is held."""

    channel: int
    error: NDArray[np.float64]
    held_noise: float | None = None


@dataclass(frozen=True, slots=True)
class Recipe:
    """Means of a plant's batches: glucose charged (g/L), first feed (L/h) and its growth (1/h)."""

    glucose_g_l: float = 8.0
    feed_start_l_h: float = 1.0
    feed_growth_h: float = 0.19


STANDARD = Recipe()


def draw_plan(rng: np.random.Generator, recipe: Recipe = STANDARD) -> Plan:
    """Return one batch of the recipe, with the variation between batches of a well-run plant."""
    return Plan(
        volume_l=rng.normal(250.0, 1.5),
        biomass_g_l=1.0 * math.exp(rng.normal(0.0, 0.06)),
        glucose_g_l=rng.normal(recipe.glucose_g_l, 0.2),
        feed_glucose_g_l=rng.normal(550.0, 7.0),
        feed_growth_h=rng.normal(recipe.feed_growth_h, 0.003),
        feed_start_l_h=rng.normal(recipe.feed_start_l_h, 0.02),
        feed_total_l=rng.uniform(34.0, 46.0),
        feed_delay_h=rng.uniform(0.1, 0.35),
        uptake=rng.normal(1.0, 0.015),
        transfer=math.exp(rng.normal(0.0, 0.04)),
        jacket=math.exp(rng.normal(0.0, 0.04)),
        air=rng.normal(1.0, 0.015),
        lag_h=0.5 * math.exp(rng.normal(0.0, 0.2)),
        temperature_c=rng.normal(37.0, 0.03),
        coolant_c=rng.normal(11.0, 0.8),
        ambient_c=rng.normal(21.0, 1.5),
        phase=rng.uniform(0.0, 2.0 * math.pi),
        antifoam_h=tuple(sorted(rng.uniform(8.0, 16.0, rng.poisson(0.7)).tolist())),
    )


def planned_hours(plan: Plan) -> float:
    """Return the duration that the recipe expects: exponential growth on the charge, then the feed profile."""
    grown = 1.0 + Y_BIOMASS_OXIDATIVE * plan.glucose_g_l / plan.biomass_g_l
    ramp_h = math.log(FEED_MAX_L_H / plan.feed_start_l_h) / plan.feed_growth_h
    ramp_l = (FEED_MAX_L_H - plan.feed_start_l_h) / plan.feed_growth_h
    plateau_h = max(plan.feed_total_l - ramp_l, 0.0) / FEED_MAX_L_H
    return plan.lag_h + math.log(grown) / _GROWTH_H + plan.feed_delay_h + ramp_h + plateau_h


def onset_sample(plan: Plan, injection: Injection) -> int:
    """Return the first sample that the fault can change."""
    return math.ceil(injection.onset_share * planned_hours(plan) * SAMPLES_PER_HOUR)


def charged(plan: Plan, injection: Injection) -> Plan:
    """Return the plan as charged; it differs from ``plan`` if the fault is one of the charge."""
    charge = injection.fault.charge
    return plan if charge is None else charge(plan, injection.direction * injection.severity)


class _Integration:
    """The integration of one batch: `advance` integrates a piece, the phases of the recipe call it."""

    def __init__(self, plan: Plan, upset: Upset, onset_h: float, loop: LoopFault | None) -> None:
        self.plant = Fermenter(plan)
        self.upset, self.onset_h, self.loop = upset, onset_h, loop
        self.t = 0.0
        self.state = self.plant.initial_state()
        self.hours: list[float] = []
        self.states: list[list[float]] = []
        self.signals: list[tuple[float, ...]] = []

    def phase(self, end_h: float, *, watch: State | None = None, level: float = 0.0) -> None:
        """Integrate to `end_h`, or until ``watch`` crosses ``level``."""
        while self.t < end_h:
            if self.t < self.onset_h < end_h:
                if self._piece(self.onset_h, watch, level):
                    return
            elif self.t >= self.onset_h:
                self._break()
                self.onset_h = math.inf
            elif self._piece(end_h, watch, level):
                return

    def _piece(self, end_h: float, watch: State | None, level: float) -> bool:
        from scipy.integrate import solve_ivp  # noqa: PLC0415 - takes 0.3 s to import; a page of help needs none

        def crossing(_t: float, state: NDArray[np.float64]) -> float:
            return float(state[watch or 0]) - level

        crossing.terminal = True  # type: ignore[attr-defined]  # the attribute that solve_ivp reads
        first, last = math.ceil(self.t * SAMPLES_PER_HOUR - 1e-9), math.ceil(end_h * SAMPLES_PER_HOUR - 1e-9)
        due = np.arange(first, last) / SAMPLES_PER_HOUR
        due[:1] = np.maximum(due[:1], self.t)
        piece = solve_ivp(
            lambda t, state: self.plant.derivatives(t, state.tolist()),
            (self.t, end_h),
            self.state,
            method="LSODA",
            t_eval=np.append(due, end_h),
            events=None if watch is None else crossing,
            rtol=1e-4,
            atol=1e-5,
        )
        if not piece.success:
            raise StreamadError(f"the batch could not be integrated past hour {self.t:.2f}: {piece.message}")
        crossed = watch is not None and piece.status == 1
        for hour, state in zip(piece.t.tolist(), piece.y.T.tolist(), strict=True):
            if hour < end_h:
                self.hours.append(hour)
                self.states.append(state)
                self.signals.append(self.plant.signals(hour, state))
        if crossed and piece.t_events is not None and piece.y_events is not None:
            self.t, self.state = float(piece.t_events[0][0]), piece.y_events[0][0].tolist()
        else:
            self.t, self.state = end_h, piece.y[:, -1].tolist()
        return crossed

    def _break(self) -> None:
        """Start the fault."""
        plant, state = self.plant, self.state
        if self.upset.coolant_valve is not None:
            command = plant.coolant_command(state, state[State.TEMPERATURE])
            plant.valve = self.upset.coolant_valve * min(max(command, 0.0), 1.0)
        state[State.CONTAMINANT] += self.upset.contaminant_g_l
        plant.upset = self.upset
        if self.loop is not None:
            plant.readings = _false_readings(self.loop, state)


def _false_readings(loop: LoopFault, state: list[float]) -> Readings:
    error = loop.error.tolist()
    last = len(error) - 1
    truth = (state[State.TEMPERATURE], state[State.PH], state[State.OXYGEN])[loop.channel]
    held = None if loop.held_noise is None else truth + loop.held_noise

    def readings(t: float, temperature: float, ph: float, oxygen: float) -> tuple[float, float, float]:
        values = [temperature, ph, oxygen]
        if held is not None:
            values[loop.channel] = held
        else:
            at = t * SAMPLES_PER_HOUR
            k = min(int(at), last - 1)
            share = min(at - k, 1.0)
            values[loop.channel] += (1.0 - share) * error[k] + share * error[k + 1]
        return values[0], values[1], values[2]

    return readings


def run_batch(plan: Plan, *, upset: Upset | None = None, onset: int = 0, loop: LoopFault | None = None) -> Trajectory:
    """Integrate a batch from inoculation to harvest; from sample `onset` on with the given fault.

    Raises StreamadError when the integration fails.
    """
    broken = upset is not None or loop is not None
    run = _Integration(plan, upset or Upset(), onset / SAMPLES_PER_HOUR if broken else math.inf, loop)
    run.phase(_BATCH_PHASE_MAX_H, watch=State.GLUCOSE, level=_GLUCOSE_USED_UP_G_L)
    run.phase(run.t + plan.feed_delay_h)
    run.plant.feeding_since = run.t
    run.phase(MAX_HOURS, watch=State.FED, level=plan.feed_total_l)
    return Trajectory(np.array(run.hours), np.array(run.states), np.array(run.signals))
