//! Adds the user's families to the embedded ones.
//!
//! Guarantees: an error in a file is one line with the file's name and, if known, the line or
//! field. A catalog with an error is not used in part.

use std::collections::BTreeMap;

use anyhow::{Result, anyhow, ensure};

use super::Catalog;
use super::family::Family;
use crate::text::toml_error;

/// A file of one family.
#[derive(Debug, Clone)]
pub struct FamilyFile {
    /// Its name, for errors and the recording's metadata.
    pub name: String,
    /// Its content.
    pub text: String,
}

impl Catalog {
    /// Adds the files of one directory. A family with the name of an existing one replaces it;
    /// others come before all existing ones, in the order of the files.
    ///
    /// # Errors
    ///
    /// The first file that is not a valid family, or whose family another of `files` has.
    pub fn add_files(&mut self, files: Vec<FamilyFile>) -> Result<()> {
        let mut from = BTreeMap::new();
        let mut added = Vec::new();
        for FamilyFile { name, text } in files {
            let mut family = parse_family(&name, &text)?;
            family.outside = Some(name.clone());
            if let Some((first_file, _)) = from.get(&family.family) {
                return Err(anyhow!("{name}: family {} is already in {first_file}", family.family));
            }
            let own_references =
                [("yields_to", &family.yields_to), ("events_of", &family.events_of)];
            let metric_references =
                family.metrics.iter().map(|metric| ("metric.only_with", &metric.only_with));
            let named = own_references
                .into_iter()
                .chain(metric_references)
                .filter_map(|(field, referenced)| Some((field, referenced.clone()?)));
            let named: Vec<_> = named.collect();
            from.insert(family.family.clone(), (name.clone(), named));
            match self.families.iter_mut().find(|known| known.family == family.family) {
                Some(known) => *known = family,
                None => added.push(family),
            }
            self.outside.push(name);
        }
        self.families.splice(0..0, added);
        for (family, (name, named)) in &from {
            for (field, referenced) in named {
                ensure!(referenced != family, "{name}: {field}: the family cannot name itself");
                let known = self.families.iter().any(|family| family.family == *referenced);
                ensure!(known, "{name}: {field}: there is no family {referenced}");
            }
        }
        Ok(())
    }
}

fn parse_family(name: &str, text: &str) -> Result<Family> {
    toml::from_str(text).map_err(|error| {
        let (line, wrong) = toml_error(text, error);
        line.map_or_else(
            || anyhow!("{name}: {wrong}"),
            |line| anyhow!("{name}, line {line}: {wrong}"),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALID: &str = "about = 'x'\nnames = ['x_#']\ngroup = 'mem'\n";

    fn file(name: &str, family: &str) -> FamilyFile {
        FamilyFile { name: name.to_owned(), text: format!("family = '{family}'\n{VALID}") }
    }

    fn names(catalog: &Catalog) -> Vec<String> {
        catalog.families.iter().map(|family| family.family.clone()).collect()
    }

    #[test]
    fn a_known_family_is_replaced_in_its_place_and_new_ones_come_first() {
        let mut catalog = Catalog::load_embedded().unwrap();
        let embedded = names(&catalog);
        catalog.add_files(vec![file("a", "b1"), file("b", "arm_cmn"), file("c", "a1")]).unwrap();
        let expected: Vec<_> =
            ["b1", "a1"].map(str::to_owned).into_iter().chain(embedded).collect();
        assert_eq!(names(&catalog), expected);
        let cmn = catalog.families.iter().find(|family| family.family == "arm_cmn").unwrap();
        assert_eq!(cmn.about, "x");
        assert_eq!(catalog.outside, ["a", "b", "c"]);
    }

    #[test]
    fn a_family_of_a_later_directory_replaces_an_earlier_one() {
        let mut catalog = Catalog::load_embedded().unwrap();
        catalog.add_files(vec![file("user/a", "a"), file("user/b", "b")]).unwrap();
        let mut later = file("given/b", "b");
        later.text = later.text.replace("'x'", "'later'");
        catalog.add_files(vec![later, file("given/c", "c")]).unwrap();
        assert_eq!(names(&catalog)[..3], ["c", "a", "b"]);
        assert_eq!(catalog.families[2].about, "later");
        assert_eq!(catalog.outside, ["user/a", "user/b", "given/b", "given/c"]);
    }

    fn refused(text: &str) -> String {
        let text = format!("family = 'f'\n{text}");
        let file = FamilyFile { name: "f.toml".to_owned(), text };
        let error = Catalog::load_embedded().unwrap().add_files(vec![file]).unwrap_err();
        let error = format!("{error:#}");
        assert!(!error.contains('\n'), "{error}");
        error
    }

    #[test]
    fn errors_are_one_line_with_file_and_place() {
        let with = |more: &str| refused(&format!("{VALID}{more}"));
        let errors = [
            refused("about = \n"),
            refused("about = 'x'\n"),
            refused("about = 'x'\nnames = []\ngroup = 'mem'\n"),
            refused("about = 'x'\nnames = 'x_#'\n"),
            refused("about = 'x'\nnames = ['x']\ngroup = 'memory'\n"),
            // The list of known keys changes with the catalog's vocabulary.
            with("colour = 1\n").split(", expected").next().unwrap_or_default().to_owned(),
            with("[[unit]]\nevents = ['*']\nunit = 'bytes'\nfactor = -1\n"),
            with("[[unit]]\nevents = ['*']\n"),
            with("[[filter]]\nterms = 'a=0x1ffffffffffffffff'\n"),
            with("[[filter]]\nterms = 'a=?'\n"),
            with("[[event]]\nnames = []\nencoding = 'event=1'\n"),
            with("[format]\nevent = 'config9:1'\n"),
            with(
                "[[metric]]\nname = 'm'\nabout = 'x'\nunit = '1'\nformula = 'a / (b'\nacross = \
                 'sum'\n",
            ),
            with("[[metric]]\nname = 'M/s'\n"),
            with("[[metric]]\nname = 'm'\nabout = 'x'\nunit = '1'\nformula = 'a'\n"),
            with(
                "[[metric]]\nname = 'm'\nabout = 'x'\nunit = '1'\nformula = 'a'\nacross = \
                 'sum'\ninputs = { a = 'b,c=' }\n",
            ),
            with(
                "[[metric]]\nname = 'm'\nabout = 'x'\nunit = '1'\nformula = 'a'\nacross = \
                 'sum'\nonly_with = 'none'\n",
            ),
            with("[[constant]]\nname = 'duration_ns'\nvalue = 1\n"),
            with("[[budget]]\ncounters = 0\n"),
            with("[[budget]]\ncounters = 1\nplace = { term = 'a', with = 'b', shift = 64 }\n"),
            with("[[source]]\ncause = 'nobody'\n"),
            with("[ports]\nby = 'dwc name'\ncount = 65\n"),
            with("[ports]\nby = 'guess'\n"),
            with("yields_to = 'none'\n"),
            with("yields_to = 'f'\n"),
            with("events_of = 'none'\n"),
        ];
        insta::assert_snapshot!(errors.join("\n"), @r#"
        f.toml, line 2: string values must be quoted, expected literal string
        f.toml: missing field `names`
        f.toml, line 3: an empty list, expected a name, in `names`
        f.toml, line 3: invalid type: string "x_#", expected a sequence, in `names`
        f.toml, line 4: unknown variant `memory`, expected one of `mem`, `cache`, `pcie`, `c2c`, `mesh`, `latency`, `energy`, `core`, `host`, `io`, in `group`
        f.toml, line 5: unknown field `colour`
        f.toml, line 8: -1 is not a positive number, in `unit.factor`
        f.toml, line 5: missing field `unit`, in `unit`
        f.toml, line 6: "0x1ffffffffffffffff" is not a number of at most 64 bits, in `filter.terms`
        f.toml, line 6: a has no value, expected a=N, in `filter.terms`
        f.toml, line 6: an empty list, expected a name, in `event.names`
        f.toml, line 5: format "config9:1" names the unknown word "config9", in `format`
        f.toml, line 9: column 5: the '(' here has no closing ')', in `metric.formula`
        f.toml, line 6: "M/s" is not a name of lower-case words joined by _ or ., in `metric.name`
        f.toml, line 5: missing field `across`, in `metric`
        f.toml, line 11: a: column 5: expected a value after '=', in `metric.inputs`
        f.toml: metric.only_with: there is no family none
        f.toml, line 6: duration_ns is a reserved name: the time counted, in `constant.name`
        f.toml, line 6: 0 is not a number of counters, in `budget.counters`
        f.toml, line 7: 64 is not a number of bits below 64, in `budget.place.shift`
        f.toml, line 6: expected `cpu`, `device`, `remote`, or a list of these, in `source.cause`
        f.toml, line 7: 65 is more than the 64 bits of a term, in `ports.count`
        f.toml, line 6: unknown variant `guess`, expected one of `grace domain`, `tegra410 dvsec`, `dwc name`, `pcie_bdf name`, `hisi bdf range`, `hns3 bdf range`, `iort`, `intel die`, in `ports.by`
        f.toml: yields_to: there is no family none
        f.toml: yields_to: the family cannot name itself
        f.toml: events_of: there is no family none
        "#);
    }

    #[test]
    fn a_family_in_two_files_of_a_directory_is_refused() {
        let files = vec![file("a.toml", "same"), file("b.toml", "same")];
        let error = Catalog::load_embedded().unwrap().add_files(files).unwrap_err().to_string();
        assert_eq!(error, "b.toml: family same is already in a.toml");
    }
}
