"""The tests, of the fluidtool that is installed."""

from tests.support.checkout import put_the_checkout_last

put_the_checkout_last()
