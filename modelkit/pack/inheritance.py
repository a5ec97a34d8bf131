"""What a Modelfile says, over what comes with the model that FROM names. Pure."""

from dataclasses import replace
from pathlib import Path

from modelkit.chat.builtin import builtin_templates
from modelkit.modelfile import Directive, Recipe
from modelkit.pack import checks
from modelkit.pack.metadata import DraftFacts, Metadata
from modelkit.pack.part import Part


def beneath(recipe: Recipe, said: tuple[Directive, ...]) -> Recipe:
    """The recipe, with what it does not say taken from lines that came with the model."""
    if not said:
        return recipe
    lines = (Directive("FROM", "."), *said)
    under = Recipe.of(lines, Path(), file=recipe.from_.text)
    return replace(
        recipe,
        parameters=under.parameters.merge(recipe.parameters),
        system=under.system if recipe.system is None else recipe.system,
        template=recipe.template or under.template,
        messages=recipe.messages or under.messages,
        licenses=(*under.licenses, *recipe.licenses),
        notes=(*recipe.notes, *under.notes),
    )


def with_renderer(recipe: Recipe) -> Recipe:
    """With the template that RENDERER names, where modelkit has one and TEMPLATE says no other."""
    name = (recipe.renderer or "").strip()
    if recipe.template is None and name in builtin_templates():
        return replace(recipe, template=name)
    return recipe


def merge(inherited: Metadata, recipe: Recipe, draft: Part | None) -> Metadata:
    """The base's recipe under the Modelfile's: parameters per key, the rest as a whole where it is said.

    An empty SYSTEM takes an inherited one away.
    """
    return Metadata(
        parameters=inherited.parameters.merge(recipe.parameters),
        system=(inherited.system if recipe.system is None else recipe.system) or None,
        messages=recipe.messages or inherited.messages,
        own_template=recipe.template is not None or inherited.own_template,
        renderer=recipe.renderer or inherited.renderer,
        parser=recipe.parser or inherited.parser,
        requires=recipe.requires or inherited.requires,
        adapters=tuple(one for one in inherited.adapters if one.fused),
        draft=DraftFacts(checks.architecture_of(draft.plan.config)) if draft else None,
    )
