"""The plant: cells in a 500 L stirred fermenter with jacket, feed, aeration and its control loops, as one ODE system.

The cells are Escherichia coli on glucose, with overflow to acetate and its re-uptake. Rate equations and parameters:
E. Anane, D. C. López C., P. Neubauer, M. N. Cruz Bournazou, "Modelling overflow metabolism in Escherichia coli by
acetate cycling", Biochemical Engineering Journal 125 (2017) 23-30. Temperature and pH scale the glucose uptake by the
cardinal models of L. Rosso, J. R. Lobry, S. Bajard, J. P. Flandrois, Applied and Environmental Microbiology 61 (1995)
610-616, normalised to one at the set points; the growth limits are near those of T. Ross et al., Int. J. Food
Microbiology 82 (2003) 33-43 (7.6-47.4 °C, from pH 4.0).

The vessel: balances for fed-batch tanks in the usual form; kLa of K. van 't Riet, Ind. Eng. Chem. Process Des. Dev. 18
(1979) 357-364 (ionic media); heat of 0.12 kcal per mmol of oxygen, C. L. Cooney, D. I. C. Wang, R. I. Mateles,
Biotechnology and Bioengineering 11 (1969) 269-281; one proton per ammonium taken up, biomass CH1.8 O0.5 N0.2, J. A.
Roels, Energetics and Kinetics in Biotechnology (1983). Actuators and tuning are ours. Time is in hours.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum

TEMPERATURE_SETPOINT_C = 37.0
PH_SETPOINT = 7.0

# Anane et al. 2017. Rates in g per g biomass and hour, saturation constants in g/L, yields in g/g.
Q_GLUCOSE_MAX = 0.6356
K_GLUCOSE = 0.0370
K_ACETATE_INHIBITION = 1.2399
P_ACETATE_MAX = 0.2268
K_OVERFLOW = 0.5052
Q_ACETATE_MAX = 0.1148
K_ACETATE = 0.0134
K_GLUCOSE_ON_ACETATE = 2.1231
Q_MAINTENANCE = 0.0129
Y_BIOMASS_OXIDATIVE = 0.5333
Y_BIOMASS_OVERFLOW = 0.2268
Y_BIOMASS_ACETATE = 0.5718
Y_ACETATE_OVERFLOW = 0.9097
Y_OXYGEN_GLUCOSE = 1.5620
Y_OXYGEN_ACETATE = 0.5440
CARBON_GLUCOSE = 0.391
CARBON_BIOMASS = 0.488
# Half-saturation of respiration in per cent air saturation; the paper's 0.0001 acts as a switch and is stiff.
K_OXYGEN_PERCENT = 1.0

# A fast aerobic contaminant that makes acid: not from the paper, chosen to outgrow the host at low glucose.
Q_CONTAMINANT_MAX = 1.4
K_CONTAMINANT = 0.03
Y_CONTAMINANT = 0.40
Y_CONTAMINANT_ACID = 0.35
Y_CONTAMINANT_OXYGEN = 0.30

_T_MIN, _T_OPT, _T_MAX = 7.6, 40.0, 47.4
_PH_MIN, _PH_OPT, _PH_MAX = 4.0, 7.0, 9.0


def _cardinal_temperature(temperature_c: float) -> float:
    t = temperature_c
    if not _T_MIN < t < _T_MAX:
        return 0.0
    above = (t - _T_MAX) * (t - _T_MIN) ** 2
    span = _T_OPT - _T_MIN
    below = span * (span * (t - _T_OPT) - (_T_OPT - _T_MAX) * (_T_OPT + _T_MIN - 2.0 * t))
    return above / below


def _cardinal_ph(ph: float) -> float:
    if not _PH_MIN < ph < _PH_MAX:
        return 0.0
    parabola = (ph - _PH_MIN) * (ph - _PH_MAX)
    return parabola / (parabola - (ph - _PH_OPT) ** 2)


_AT_SETPOINTS = _cardinal_temperature(TEMPERATURE_SETPOINT_C) * _cardinal_ph(PH_SETPOINT)


def activity(temperature_c: float, ph: float) -> float:
    """Return the factor on the glucose uptake: one at 37 °C and pH 7, zero outside the limits of growth."""
    return _cardinal_temperature(temperature_c) * _cardinal_ph(ph) / _AT_SETPOINTS


def cell_rates(
    glucose: float, acetate: float, oxygen_percent: float, scale: float
) -> tuple[float, float, float, float]:
    """Glucose uptake, net acetate formation, growth, oxygen uptake: g per g biomass and hour.

    `scale` multiplies the maximal glucose and acetate uptake (activity, lag, batch-to-batch variation). Negative
    concentrations, which an integrator may try, count as zero.
    """
    s, a = max(glucose, 0.0), max(acetate, 0.0)
    oxygen = max(oxygen_percent, 0.0)
    breathing = oxygen / (oxygen + K_OXYGEN_PERCENT)
    uptake = scale * Q_GLUCOSE_MAX / (1.0 + a / K_ACETATE_INHIBITION) * s / (s + K_GLUCOSE)
    overflow = P_ACETATE_MAX * uptake / (uptake + K_OVERFLOW)
    oxidative = (uptake - overflow) * breathing
    anabolic = (oxidative - Q_MAINTENANCE) * Y_BIOMASS_OXIDATIVE * CARBON_BIOMASS / CARBON_GLUCOSE
    reuptake = scale * breathing * Q_ACETATE_MAX / (1.0 + uptake / K_GLUCOSE_ON_ACETATE) * a / (a + K_ACETATE)
    growth = (
        (oxidative - Q_MAINTENANCE) * Y_BIOMASS_OXIDATIVE + reuptake * Y_BIOMASS_ACETATE + overflow * Y_BIOMASS_OVERFLOW
    )
    respiration = Y_OXYGEN_GLUCOSE * (oxidative - anabolic) + Y_OXYGEN_ACETATE * reuptake
    return uptake, overflow * Y_ACETATE_OVERFLOW - reuptake, growth, respiration * breathing


def contaminant_rates(glucose: float, scale: float) -> tuple[float, float, float, float]:
    """Glucose uptake, acid formation, growth and oxygen uptake of the contaminant: g per g and hour."""
    s = max(glucose, 0.0)
    uptake = scale * Q_CONTAMINANT_MAX * s / (s + K_CONTAMINANT)
    return uptake, uptake * Y_CONTAMINANT_ACID, uptake * Y_CONTAMINANT, uptake * Y_CONTAMINANT_OXYGEN


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
