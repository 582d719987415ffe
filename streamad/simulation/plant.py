"""The plant: a 500 L stirred fermenter with jacket, feed, aeration and its three control loops, as one ODE system.

Balances for fed-batch tanks in the usual form; kLa of K. van 't Riet, Ind. Eng. Chem. Process Des. Dev. 18 (1979)
357-364 (ionic media); heat of 0.12 kcal per mmol of oxygen, C. L. Cooney, D. I. C. Wang, R. I. Mateles, Biotechnology
and Bioengineering 11 (1969) 269-281; one proton per ammonium taken up, biomass CH1.8 O0.5 N0.2, J. A. Roels,
Energetics and Kinetics in Biotechnology (1983). Vessel, actuators and tuning are ours. Time is in hours.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum

from streamad.simulation.kinetics import PH_SETPOINT, TEMPERATURE_SETPOINT_C, activity, cell_rates, contaminant_rates

OXYGEN_SETPOINT_PERCENT = 30.0
FEED_MAX_L_H = 6.5
BASE_MAX_L_H = 3.0
COOLANT_MAX_L_H = 2500.0
AGITATOR_MAX_KW = 2.5
AIR_MOL_H = 803.0  # 300 normal litres per minute
_HEATER_MAX_KW = 8.0
_AGITATOR_MIN = 0.35  # share of the full speed
_BASE_MOL_L = 10.0
_BUFFER_MOL_L_PH = 0.05
_JACKET_L = 80.0
_JACKET_LIMIT_C = 50.0  # the jacket's own thermostat limits the heater
_UA_KW_K = 0.75
_LOSS_KW_K = 0.03
_WATER_KJ_L_K = 4.18
_OXYGEN_SATURATION_G_L = 0.0102  # medium at 37 °C under 1.5 bar of air
_VESSEL_AREA_M2 = 0.283
_HEAT_KJ_PER_G_OXYGEN = 0.12 * 4184.0 / 32.0
_PROTONS_MOL_PER_G = 0.2 / 24.6
_GAS_LAG_H = 0.07  # headspace and off-gas analyser
_TRACKING_H = 0.05  # anti-windup


class State(IntEnum):
    """Index of each quantity in the state vector."""

    VOLUME, BIOMASS, GLUCOSE, ACETATE, OXYGEN, TEMPERATURE, JACKET, PH = range(8)
    CO2, HEAT_INTEGRAL, PH_INTEGRAL, OXYGEN_INTEGRAL, CONTAMINANT, FED = range(8, 14)


@dataclass(frozen=True, slots=True)
class Upset:
    """Effect of a process fault on the plant; the defaults are a healthy plant."""

    jacket_transfer: float = 1.0
    coolant_valve: float | None = None  # stuck at this share of its position at onset
    feed_pump: float = 1.0
    base_pump: float = 1.0
    air_supply: float = 1.0
    stirrer: float = 1.0
    contaminant_g_l: float = 0.0


@dataclass(frozen=True, slots=True)
class Plan:
    """One batch: the recipe with all that varies from batch to batch."""

    volume_l: float
    biomass_g_l: float
    glucose_g_l: float
    feed_glucose_g_l: float
    feed_growth_h: float  # exponent of the feed profile, 1/h
    feed_start_l_h: float
    feed_total_l: float
    feed_delay_h: float
    uptake: float  # factors around one
    transfer: float
    jacket: float
    air: float
    lag_h: float
    temperature_c: float
    coolant_c: float
    ambient_c: float
    phase: float  # of the slow disturbances, radians
    antifoam_h: tuple[float, ...]


Readings = Callable[[float, float, float, float], tuple[float, float, float]]


def true_readings(t: float, temperature: float, ph: float, oxygen: float) -> tuple[float, float, float]:
    """Return the readings of healthy probes."""
    return temperature, ph, oxygen


def _clip(value: float, low: float, high: float) -> float:
    return low if value < low else high if value > high else value


class Fermenter:
    """The right-hand side of one batch: `derivatives(t, state)` for the integrator, `signals(t, state)` for the probes.

    `upset` and `readings` change between two integration pieces only. `feeding_since` is None before the feed, `valve`
    the position of a stuck coolant valve.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.upset = Upset()
        self.readings: Readings = true_readings
        self.feeding_since: float | None = None
        self.valve: float | None = None

    def initial_state(self) -> list[float]:
        """Return the state of the charged and inoculated vessel: at temperature, air-saturated."""
        plan = self.plan
        start = [plan.volume_l, plan.biomass_g_l, plan.glucose_g_l, 0.01, 98.0, plan.temperature_c, plan.temperature_c]
        return [*start, PH_SETPOINT, 0.04, 0.0, 0.0, _AGITATOR_MIN, 0.0, 0.0]

    def feed(self, t: float) -> float:
        """Return the feed that reaches the vessel, L/h: exponential, then capped; the pump's rate wanders slightly."""
        if self.feeding_since is None:
            return 0.0
        exponential = self.plan.feed_start_l_h * math.exp(self.plan.feed_growth_h * (t - self.feeding_since))
        wander = 1.0 + 0.012 * math.sin(2.1 * t + self.plan.phase)
        return min(exponential, FEED_MAX_L_H) * wander * self.upset.feed_pump

    def _foam(self, t: float) -> float:
        factor = 1.0
        for shot in self.plan.antifoam_h:
            if t > shot:
                since = t - shot
                factor -= 0.25 * (since / 0.15) * math.exp(-since / 0.5) / (1.0 + since / 0.15)
        return factor

    def coolant_command(self, state: Sequence[float], reading: float) -> float:
        """Return the controller output of the temperature loop: above zero cools, below zero heats."""
        return 0.5 * (reading - TEMPERATURE_SETPOINT_C) + state[State.HEAT_INTEGRAL]

    def derivatives(self, t: float, state: Sequence[float]) -> list[float]:
        """Return the time derivatives of `State`, per hour."""
        return self._balance(t, state)[0]

    def signals(self, t: float, state: Sequence[float]) -> tuple[float, ...]:
        """Return the true values of the nine channels, in the order of `CHANNELS`."""
        return self._balance(t, state)[1]

    def _balance(self, t: float, state: Sequence[float]) -> tuple[list[float], tuple[float, ...]]:
        plan, upset = self.plan, self.upset
        volume, x, s, a, oxygen, temp, jacket, ph, co2, _, i_ph, i_oxygen, z, _ = state
        temp_read, ph_read, oxygen_read = self.readings(t, temp, ph, oxygen)

        # Controllers: proportional-integral, the integral tracks the saturated actuator.
        heat_out = self.coolant_command(state, temp_read)
        heat_set = _clip(heat_out, -1.0, 1.0)
        base_out = 1.5 * (PH_SETPOINT - ph_read) + i_ph
        base_set = _clip(base_out, 0.0, 1.0)
        speed_out = 0.01 * (OXYGEN_SETPOINT_PERCENT - oxygen_read) + i_oxygen
        speed = _clip(speed_out, _AGITATOR_MIN, 1.0)
        cooling = max(heat_set, 0.0) if self.valve is None else self.valve
        coolant = COOLANT_MAX_L_H * cooling
        base = BASE_MAX_L_H * base_set * upset.base_pump
        power = AGITATOR_MAX_KW * speed**3 * upset.stirrer
        feed = self.feed(t)

        # Cells.
        scale = plan.uptake * activity(temp, ph) * (1.0 - math.exp(-(t + 0.1) / plan.lag_h))
        q_s, q_a, mu, q_o = cell_rates(s, a, oxygen, scale)
        z_s, z_a, z_mu, z_o = contaminant_rates(s, activity(temp, ph))
        oxygen_uptake = q_o * x + z_o * z * max(oxygen, 0.0) / (max(oxygen, 0.0) + 1.0)
        growth = mu * x + z_mu * z

        # Gas: outlet mixing, oxygen in quasi-steady state, carbon dioxide at a respiratory quotient of one.
        air = AIR_MOL_H * plan.air * upset.air_supply * (1.0 + 0.01 * math.sin(1.3 * t + 2.0 * plan.phase))
        velocity = air * 0.0224 / 3600.0 / _VESSEL_AREA_M2
        kla = 3600.0 * 0.002 * (1e6 * power / volume) ** 0.7 * velocity**0.2 * plan.transfer * self._foam(t)
        depletion = kla * _OXYGEN_SATURATION_G_L * volume / (32.0 * 0.2095 * air)
        transfer = kla * _OXYGEN_SATURATION_G_L * (1.0 - 0.01 * oxygen) / (1.0 + depletion)
        gas_co2 = 0.04 + 100.0 * oxygen_uptake / 32.0 * volume / air

        # Heat, kJ/h.
        tide = 1.2 * math.sin(2.0 * math.pi * t / 24.0 + plan.phase)
        through_wall = 3600.0 * _UA_KW_K * plan.jacket * upset.jacket_transfer * (temp - jacket)
        metabolic = _HEAT_KJ_PER_G_OXYGEN * oxygen_uptake * volume
        losses = 3600.0 * _LOSS_KW_K * (temp - plan.ambient_c - tide)
        cold_feed = _WATER_KJ_L_K * (feed + base) * (temp - plan.ambient_c)
        thermostat = _clip((_JACKET_LIMIT_C - jacket) / 3.0, 0.0, 1.0)
        heating = 3600.0 * _HEATER_MAX_KW * max(-heat_set, 0.0) * thermostat
        flushed = _WATER_KJ_L_K * coolant * (plan.coolant_c + 0.5 * tide - jacket)

        acid = (_PROTONS_MOL_PER_G * growth + (q_a * x + z_a * z) / 60.0) * volume
        dilution = (feed + base) / volume
        derivatives = [
            feed + base,
            growth - z_mu * z - x * dilution,
            feed * plan.feed_glucose_g_l / volume - q_s * x - z_s * z - s * dilution,
            q_a * x + z_a * z - a * dilution,
            100.0 * (transfer - oxygen_uptake) / _OXYGEN_SATURATION_G_L,
            (metabolic + 3600.0 * power - through_wall - losses - cold_feed) / (_WATER_KJ_L_K * volume),
            (through_wall + flushed + heating) / (_WATER_KJ_L_K * _JACKET_L),
            (base * _BASE_MOL_L - acid) / (_BUFFER_MOL_L_PH * volume),
            (gas_co2 - co2) / _GAS_LAG_H,
            0.5 / 0.4 * (temp_read - TEMPERATURE_SETPOINT_C) + (heat_set - heat_out) / _TRACKING_H,
            1.5 / 0.7 * (PH_SETPOINT - ph_read) + (base_set - base_out) / _TRACKING_H,
            0.01 / 0.1 * (OXYGEN_SETPOINT_PERCENT - oxygen_read) + (speed - speed_out) / _TRACKING_H,
            z_mu * z - z * dilution,
            feed,
        ]
        return derivatives, (temp, ph, oxygen, power, feed, base, coolant, co2, volume)
