"""What is known of one drafter in batches of one size: its costs, and a depth for every grade of guess.

Some drafters know beforehand how good a guess is (prompt lookup: how long the match is). Grades cost the
same, and what is accepted of them differs, so they share costs and each has its own depth. Pure.
"""

from collections.abc import Sequence

from runtime.speculate.costs import Costs
from runtime.speculate.depth import DepthController
from runtime.speculate.learned import Lesson


class Learner:
    """limit: the drafter's own largest depth. lesson: what an earlier run learned."""

    def __init__(self, limit: int, lesson: Lesson | None = None) -> None:
        self._limit = limit
        self._costs = Costs()
        self._grades: dict[int, DepthController] = {}
        if lesson is not None:
            self._costs.remember({depth: cost for depth, cost in lesson.costs.items() if depth <= limit})
            for grade, accepted in lesson.accepted.items():
                self.grade(grade).remember(accepted)

    def grade(self, grade: int) -> DepthController:
        """Grades count from 1."""
        if grade not in self._grades:
            self._grades[grade] = DepthController(self._limit, self._costs)
        return self._grades[grade]

    def plain(self, seconds: float | None) -> None:
        """A round without drafts."""
        clean = self._costs.record(0, seconds)
        for controller in self._grades.values():
            controller.judge(0, [], clean=clean, timed=seconds is not None)

    def drafted(
        self, grade: int, depth: int, judged: Sequence[tuple[int, int]], seconds: float | None
    ) -> None:
        """A round with this drafter's drafts of that grade; see DepthController.record."""
        clean = self._costs.record(depth, seconds)
        self.grade(grade).judge(depth, judged, clean=clean, timed=seconds is not None)

    def interrupt(self) -> None:
        """Another drafter's round."""
        self._costs.interrupt()

    @property
    def depths(self) -> dict[int, int]:
        """Grade -> the depth that pays best."""
        return {grade: one.depth for grade, one in sorted(self._grades.items())}

    def lesson(self) -> Lesson:
        return Lesson(
            self._costs.learned(),
            {grade: one.learned() for grade, one in self._grades.items()},
            self.depths,
        )
