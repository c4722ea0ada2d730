"""All kinds of cases, by name."""

from collections.abc import Mapping

from tests.fuzz.case import Kind
from tests.fuzz.of_data import OwnData
from tests.fuzz.of_images import Images
from tests.fuzz.of_overrides import Overrides
from tests.fuzz.of_results import ResultDirectories
from tests.fuzz.of_scenarios import Scenarios
from tests.fuzz.of_texts import Texts
from tests.fuzz.of_traces import Traces

KINDS: Mapping[str, Kind] = {
    kind.name: kind
    for kind in (Scenarios(), Texts(), Overrides(), Images(), Traces(), OwnData(), ResultDirectories())
}
