"""python -m modelkit.ranks: a rank above 0 that another process has started."""

import sys

from modelkit.ranks.follower import follow

if __name__ == "__main__":
    sys.exit(follow())
