"""`MEASURES`: what a study can record inside its models and show in its report, by name."""

from pellucid.apps.lab.measures import attention, model
from pellucid.apps.lab.measures.measure import Measure

MEASURES: dict[str, Measure] = {
    measure.name: measure
    for measure in (
        attention.MEASURE,
        model.MEMORY,
        model.EMBEDDINGS,
        model.GRADIENTS,
        model.DEAD_UNITS,
    )
}
BUILT_IN = tuple(MEASURES)
"""The lab's, which a study has that names none; those of other files are named."""
