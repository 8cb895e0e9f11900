"""Is a slowdown a fixed time per kernel or a share of its duration?

Model, per aligned launch of the same kernel: b = a * (1 + s) + c + noise. It is fitted in the form

    d = alpha + beta * m,   d = b - a,   m = (a + b) / 2

because d and m are uncorrelated when both sides carry equal noise (Bland and Altman 1986), while d against a
is biased by the noise of a. Then s = beta / (1 - beta / 2) and c = alpha / (1 - beta / 2).

The fit is an M-estimator with Tukey's bisquare (tuning constant 4.685: 95 % efficiency under normal errors),
started from Huber's, with weights for an error that grows with the duration. Standard errors are sandwich
estimates clustered by kernel signature where there are enough signatures, since all launches of one kernel
may share one peculiarity.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import special

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

LEVEL = 0.99
MIN_LAUNCHES = 12
MIN_CLUSTERS = 8
MIN_SPREAD = 1.5  # 90th over 10th percentile of the durations: below, both terms look the same
MATERIAL = 0.005  # share of the aligned time that a fixed cost must have to be read
MATERIAL_RATIO = 0.01  # and change of the ratio: uniform scaling of a percent is what clocks do
RESOLUTION = 0.05  # "neither" is said only when a change of the whole time above this share is excluded, and
RESOLUTION_EACH = 0.10  # of its two parts above this one
TIMER_US = 0.02  # error floor: profilers round to some ten nanoseconds
TUKEY, HUBER = 4.685, 1.345
ERROR_FLOOR = 1e-9  # of a coefficient, where a fit is perfect
STEEPEST = 1.9  # of beta: b is then 39 times a, and no linear change describes that
_NAN = float("nan")


@dataclass(frozen=True)
class AdditiveFit:
    """Additive and multiplicative part of the change of aligned kernels.

    Attributes:
        us_per_kernel: fixed change per launch in microseconds, with ``us_ci``.
        ratio: b over a of the duration-proportional part, with ``ratio_ci``.
        reading: "additive", "multiplicative", "both", "neither" or "undecided".
        why: one sentence for the reading.
        launches: launches fitted; ``clusters``: their signatures.
        share_us: additive part as a share of the aligned time of a.
        spread: 90th over 10th percentile of the durations.
        level: of both intervals.
    """

    us_per_kernel: float
    us_ci: tuple[float, float]
    ratio: float
    ratio_ci: tuple[float, float]
    reading: str
    why: str
    launches: int
    clusters: int
    share_us: float
    spread: float
    level: float = LEVEL

    def to_json(self) -> dict[str, Any]:
        """The parts of the command line's document that come from this fit; NaN becomes null."""
        return {
            "additive": {"us_per_kernel": _finite(self.us_per_kernel), "ci": [_finite(x) for x in self.us_ci],
                         "share_of_time": _finite(self.share_us), "level": self.level},
            "multiplicative": {"ratio": _finite(self.ratio), "ci": [_finite(x) for x in self.ratio_ci],
                               "level": self.level},
        }  # fmt: skip


def fit_additive(dur_a_us: npt.ArrayLike, dur_b_us: npt.ArrayLike, signature: npt.ArrayLike) -> AdditiveFit:
    """Fit aligned launches of the same kernels.

    Args:
        dur_a_us: durations in the baseline, shape (n,), microseconds.
        dur_b_us: durations of the same launches in the candidate.
        signature: a number per launch that is equal for launches of one kernel with one size.
    """
    a, b = np.asarray(dur_a_us, dtype=float), np.asarray(dur_b_us, dtype=float)
    group = np.asarray(signature)
    good = (a > 0) & (b > 0)
    a, b, group = a[good], b[good], group[good]
    clusters = int(np.unique(group).size)
    if a.size < MIN_LAUNCHES:
        return _unread(a.size, clusters, _NAN, f"only {a.size} aligned launches of the same kernels")
    mean, change = (a + b) / 2, b - a
    low, high = np.percentile(a, [10, 90])
    spread = float(high / low)
    solved = _robust(mean, change, group)
    if spread < MIN_SPREAD or solved is None:
        why = (
            f"the durations do not spread enough (90th over 10th percentile {spread:.2f}, needed {MIN_SPREAD:g}): "
            f"a fixed cost and a share look the same; in sum the launches changed by {100 * (b.sum() / a.sum() - 1):+.2f} %"
        )
        return _unread(a.size, clusters, spread, why)
    coefficients, covariance, freedom = solved
    if abs(coefficients[1]) > STEEPEST:
        why = "the durations changed so much that they are not those of the same work"
        return _unread(a.size, clusters, spread, why)
    return _read(coefficients, covariance, freedom, _Base(a, clusters, spread))


def _unread(launches: int, clusters: int, spread: float, why: str) -> AdditiveFit:
    nothing = (_NAN, _NAN)
    return AdditiveFit(_NAN, nothing, _NAN, nothing, "undecided", why, launches, clusters, _NAN, spread)


def _robust(x: Floats, y: Floats, group: Ints) -> tuple[Floats, Floats, int] | None:
    """Coefficients (alpha, beta), their covariance and degrees of freedom; None when they cannot be told apart."""
    noise = _noise_share(x, y)
    error = np.sqrt(TIMER_US**2 + (noise * x) ** 2)
    design = np.stack([np.ones_like(x), x], axis=1) / error[:, None]
    target = y / error
    beta = _median_line(x, y, error)
    for tuning, bisquare in ((HUBER, False), (TUKEY, True)):
        for _ in range(60):
            weight = _weights(target - design @ beta, tuning, bisquare)
            normal = (design * weight[:, None]).T @ design
            if np.linalg.cond(normal) > 1e14:
                return None
            new: Floats = np.asarray(
                np.linalg.solve(normal, (design * weight[:, None]).T @ target), dtype=np.float64
            )
            done = np.allclose(new, beta, rtol=1e-9, atol=1e-12)
            beta = new
            if done:
                break
    return beta, *_covariance(design, target - design @ beta, group)


def _covariance(design: Floats, residual: Floats, group: Ints) -> tuple[Floats, int]:
    """Sandwich covariance and degrees of freedom.

    Each parameter takes the largest error of three: Huber's for equal errors, by launches (HC3), and by
    signatures, since each of them comes out too small by chance in small samples (Cameron and Miller 2015).
    """
    weight = _weights(residual, TUKEY, True)
    slope = _psi_slope(residual)
    bread = np.linalg.pinv((design * slope[:, None]).T @ design)
    leverage = np.einsum("ij,jk,ik->i", design * slope[:, None], bread, design)
    scores = design * (weight * residual / np.clip(1 - leverage, 0.1, 1.0))[:, None]
    by_launch = bread @ (scores.T @ scores) @ bread.T
    freedom = residual.size - 2
    classic = float((weight * residual) @ (weight * residual)) / freedom / max(float(slope.mean()), 0.1) ** 2
    errors = [np.diag(by_launch), classic * np.diag(np.linalg.inv(design.T @ design))]
    _, codes = np.unique(group, return_inverse=True)
    count = int(codes.max()) + 1
    if MIN_CLUSTERS <= count < residual.size:
        summed = np.zeros((count, 2))
        np.add.at(summed, codes, scores)
        errors.append(np.diag(count / (count - 2) * bread @ (summed.T @ summed) @ bread.T))
        freedom = count - 2
    size = np.sqrt(np.maximum(np.max(errors, axis=0), ERROR_FLOOR**2))
    plain = np.linalg.inv(design.T @ design)
    correlation = plain / np.sqrt(np.outer(np.diag(plain), np.diag(plain)))
    return correlation * np.outer(size, size), freedom


def _noise_share(x: Floats, y: Floats) -> float:
    """Robust relative error of the change around its trend in the duration."""
    relative = y / x
    order = np.argsort(x, kind="stable")
    steps = np.diff(relative[order]) / np.sqrt(2)
    spread = float(np.median(np.abs(steps))) / 0.6745 if steps.size else 0.0
    return max(spread, 1e-4)


def _median_line(x: Floats, y: Floats, error: Floats) -> Floats:
    """A starting line through the medians of the short and of the long launches."""
    cut = np.median(x)
    short, long = x <= cut, x > cut
    if not long.any():
        return np.array([float(np.median(y)), 0.0])
    x0, x1 = float(np.median(x[short])), float(np.median(x[long]))
    y0, y1 = float(np.median(y[short])), float(np.median(y[long]))
    beta = (y1 - y0) / (x1 - x0) if x1 > x0 else 0.0
    return np.array([y0 - beta * x0, beta])


def _scale(residual: Floats) -> float:
    return max(float(np.median(np.abs(residual))) / 0.6745, 1e-9)


def _weights(residual: Floats, tuning: float, bisquare: bool) -> Floats:
    u = np.abs(residual) / (tuning * _scale(residual))
    if bisquare:
        return np.where(u < 1, (1 - u**2) ** 2, 0.0)
    return np.where(u <= 1, 1.0, 1.0 / np.maximum(u, 1e-300))


def _psi_slope(residual: Floats) -> Floats:
    """Derivative of Tukey's psi, used as the weight of each observation in the bread of the sandwich."""
    u = residual / (TUKEY * _scale(residual))
    return np.where(np.abs(u) < 1, (1 - u**2) * (1 - 5 * u**2), 0.0)


@dataclass(frozen=True)
class _Base:
    """Durations of the baseline and what is known about them."""

    durations: Floats
    clusters: int
    spread: float


def _read(coefficients: Floats, covariance: Floats, freedom: int, base: _Base) -> AdditiveFit:
    a = base.durations
    alpha, beta = coefficients
    divisor = 1 - beta / 2
    slope, constant = beta / divisor, alpha / divisor
    # delta method: ds/dbeta = 1/divisor^2, dc/dalpha = 1/divisor, dc/dbeta = alpha/(2 divisor^2)
    jacobian = np.array([[1 / divisor, alpha / (2 * divisor**2)], [0.0, 1 / divisor**2]])
    variance = jacobian @ covariance @ jacobian.T
    error_c, error_s = np.sqrt(np.maximum(np.diag(variance), 0))
    t = float(special.stdtrit(freedom, 0.5 + LEVEL / 2))
    ci_c = (constant - t * error_c, constant + t * error_c)
    ci_s = (slope - t * error_s, slope + t * error_s)
    per_us = a.size / float(a.sum())  # share of the aligned time that one microsecond per launch is
    both = np.array([per_us, 1.0])
    whole, error = constant * per_us + slope, t * float(np.sqrt(both @ variance @ both))
    widest = max(abs(whole - error), abs(whole + error))
    widest_each = max(*(abs(x) * per_us for x in ci_c), *(abs(x) for x in ci_s))
    joint = float(coefficients @ np.linalg.pinv(covariance) @ coefficients) / 2
    changed = joint > float(special.fdtri(2, freedom, LEVEL)) and abs(whole) >= MATERIAL
    has_c = _excludes_zero(ci_c) and abs(constant) * per_us >= MATERIAL
    has_s = _excludes_zero(ci_s) and abs(slope) >= MATERIAL_RATIO
    if has_c or has_s:
        reading = "both" if has_c and has_s else "additive" if has_c else "multiplicative"
        why = _sentence(reading, constant, slope, a)
    elif changed:
        reading, why = "undecided", "the launches changed, but a fixed cost and a share cannot be told apart"
    elif widest <= RESOLUTION and widest_each <= RESOLUTION_EACH:
        reading, why = "neither", f"a change above {100 * widest:.1f} % of the kernel time is excluded"
    else:
        reading = "undecided"
        why = f"a fixed cost or a share up to {100 * widest_each:.1f} % of the kernel time cannot be excluded"
    return AdditiveFit(
        float(constant), (float(ci_c[0]), float(ci_c[1])), float(1 + slope), (float(1 + ci_s[0]), float(1 + ci_s[1])),
        reading, why, int(a.size), base.clusters, float(constant * per_us), base.spread,
    )  # fmt: skip


def _sentence(reading: str, constant: float, slope: float, a: Floats) -> str:
    fixed = f"each launch costs {constant:+.3f} us whatever its duration ({100 * constant * a.size / a.sum():+.1f} % of the kernel time)"
    share = f"each launch takes {100 * slope:+.1f} % of its duration more"
    return {"additive": fixed, "multiplicative": share, "both": f"{fixed}, and {share}"}[reading]


def _excludes_zero(interval: tuple[float, float]) -> bool:
    return bool(interval[0] > 0 or interval[1] < 0)


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None
