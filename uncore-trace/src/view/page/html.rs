//! The document, styles and scripts of the page of a recording.

use super::super::html::{Library, Page};

pub(super) const PAGE: Page = Page {
    document: include_str!("page.html"),
    styles: &[include_str!("../../../vendor/uplot/uPlot.min.css"), include_str!("page.css")],
    libraries: &[Library {
        name: "uPlot",
        licence: include_str!("../../../vendor/uplot/LICENSE"),
        script: include_str!("../../../vendor/uplot/uPlot.iife.min.js"),
    }],
    scripts: &[
        include_str!("data.js"),
        include_str!("names.js"),
        include_str!("paint.js"),
        include_str!("plot.js"),
        include_str!("table.js"),
        include_str!("sections.js"),
        include_str!("page.js"),
    ],
};

#[cfg(test)]
mod tests {
    use super::super::super::html::checks;
    use super::PAGE;

    #[test]
    fn the_page_of_a_recording_is_whole_and_loads_no_resource() {
        checks::is_whole_and_loads_nothing(&PAGE);
    }
}
