// Numbers and times as people read them.

import { language } from "./settings.js";
import { t } from "./words.js";

const locale = () => (language() === "zh" ? "zh-CN" : "en");

export const number = (value) => value.toLocaleString(locale());

/** A duration in milliseconds, to about three digits. */
export function duration(ms) {
  const sign = ms < 0 ? "−" : "";
  const abs = Math.abs(ms);
  // As the server rounds, and what is not nothing is not called so.
  if (abs < 1000) return `${sign}${Math.max(Math.round(abs), Math.ceil(Math.min(abs, 1)))} ${t("ms")}`;
  const seconds = abs / 1000;
  if (seconds < 60) return `${sign}${seconds.toFixed(seconds < 10 ? 2 : 1)} ${t("s")}`;
  const [minutes, hours, days] = [seconds / 60, seconds / 3600, seconds / 86400].map(Math.floor);
  const two = (big, bigUnit, small, smallUnit) => `${sign}${big} ${t(bigUnit)} ${small} ${t(smallUnit)}`;
  if (hours < 1) return two(minutes, "min", Math.floor(seconds % 60), "s");
  if (days < 1) return two(hours, "h", minutes % 60, "min");
  return two(days, "d", hours % 24, "h");
}

/** A duration that counts, in whole steps of a tenth of a second. */
export const counting = (ms) => (ms < 60000 ? `${(Math.max(0, ms) / 1000).toFixed(1)} ${t("s")}` : duration(ms));

/** A token. Most are microseconds since 1970: their last digits tell them apart. */
export const shortToken = (token) => (token > 999999 ? `…${String(token).slice(-6)}` : String(token));

/** That something was seen at this moment of `performance.now()`, and how long ago that is. */
export function asOf(moment) {
  const ago = performance.now() - moment;
  const whole = ago < 60000 ? `${Math.floor(ago / 1000)} ${t("s")}` : duration(ago);
  return t("as_of", { at: clock(Date.now() - ago), ago: whole });
}

export const clock = (unixMs) => new Date(unixMs).toLocaleTimeString(locale(), { hour12: false });
