from redalg.expression import *
from redalg.sugar import *
