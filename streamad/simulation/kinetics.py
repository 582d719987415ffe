"""The cells: Escherichia coli on glucose, with overflow to acetate and its re-uptake.

Rate equations and parameters of the core: E. Anane, D. C. López C., P. Neubauer, M. N. Cruz Bournazou, "Modelling
overflow metabolism in Escherichia coli by acetate cycling", Biochemical Engineering Journal 125 (2017) 23-30.
Temperature and pH scale the glucose uptake by the cardinal models of L. Rosso, J. R. Lobry, S. Bajard,
J. P. Flandrois, Applied and Environmental Microbiology 61 (1995) 610-616, normalised to one at the set points; the
growth limits are near those of T. Ross et al., Int. J. Food Microbiology 82 (2003) 33-43 (7.6-47.4 °C, from pH 4.0).
"""

from __future__ import annotations

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
