"""Months of the proleptic Gregorian calendar, by integer arithmetic alone. Years begin in March here, so that the leap
day is their last (Hinnant 2021, "chrono-Compatible Low-Level Date Algorithms")."""

from streamjoin.jit.decorator import jit

DAYS_TO_1970 = 719_468  # from 0000-03-01
MONTHS_TO_1970 = 1970 * 12 - 2


@jit
def month_number(days):
    """The number of months from January 1970 to the month of a day, which is given as days after 1970-01-01."""
    shifted = days + DAYS_TO_1970
    period = shifted // 146_097  # of 400 years
    day = shifted - period * 146_097
    year = (day - day // 1_460 + day // 36_524 - day // 146_096) // 365
    day_of_year = day - (365 * year + year // 4 - year // 100)
    month = (5 * day_of_year + 2) // 153
    return (period * 400 + year) * 12 + month - MONTHS_TO_1970


@jit
def month_start(months):
    """The first day of a month, as days after 1970-01-01; the inverse of `month_number`."""
    shifted = months + MONTHS_TO_1970
    years = shifted // 12
    period = years // 400
    year = years - period * 400
    day_of_year = (153 * (shifted - years * 12) + 2) // 5
    return period * 146_097 + year * 365 + year // 4 - year // 100 + day_of_year - DAYS_TO_1970
