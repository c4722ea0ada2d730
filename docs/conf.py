"""Sphinx settings. `make docs` runs Sphinx on the pages that docs/build/site.py writes."""

from importlib.metadata import version as version_of

from docs.build.reference_page import shown_signature

project = "coterie"
version = release = version_of("coterie")
html_title = f"coterie {version}"

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "sphinx_design",
]
exclude_patterns = ["README.md"]  # the landing page includes parts of it
html_theme = "furo"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_show_sourcelink = html_show_copyright = html_copy_source = False
highlight_language = "bash"  # for blocks without a language, which are commands
default_role = "code"  # docstrings are Markdown
smartquotes = False  # quoted text is often a value

myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 4  # with the anchors of GitHub
nb_execution_mode = "off"  # notebooks contain the outputs of their cells


def setup(app):
    def shown(app, what, name, found, options, signature, returns):
        return shown_signature(found, signature), returns

    app.connect("autodoc-process-signature", shown)


autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
