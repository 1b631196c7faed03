"""Pictures of benchmarks' documents, as SVG: each made from the JSON alone, and the same every time."""
