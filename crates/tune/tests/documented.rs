//! The manual describes every item with the text of the code.

use std::fs;
use std::path::PathBuf;
use tidegate_tune::item::Group;
use tidegate_tune::items;

fn page(name: &str) -> String {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/tuning");
    let file = folder.join(format!("{name}.md"));
    fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

/// Text without its line breaks.
fn flat(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn every_item_is_documented_with_its_mechanism_and_caution() {
    for item in items::ALL {
        let page = page(item.group.name());
        let heading = format!("\n## {}\n", item.id);
        let (_, rest) = page.split_once(&heading).unwrap_or_else(|| {
            panic!("docs/tuning/{}.md lacks the heading {}", item.group.name(), item.id)
        });
        let section = flat(rest.split("\n## ").next().unwrap());
        assert!(section.contains(&flat(item.mechanism)), "{}: the mechanism differs", item.id);
        assert!(section.contains(&flat(item.avoid)), "{}: the caution differs", item.id);
        assert!(section.contains("**Sources:**"), "{} names no sources", item.id);
    }
}

#[test]
fn no_page_describes_a_removed_item() {
    for group in Group::ALL {
        for line in page(group.name()).lines() {
            if let Some(id) = line.strip_prefix("## ").filter(|id| id.contains('-')) {
                assert!(items::by_id(id).is_some(), "{}: {id}", group.name());
            }
        }
    }
}

#[test]
fn links_of_overview_and_nine_steps_exist() {
    for text in [page("README"), page("nine-steps")] {
        for target in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let (name, heading) = target.split_once('#').unwrap_or((target, ""));
            let linked = page(name.trim_end_matches(".md"));
            assert!(heading.is_empty() || linked.contains(&format!("## {heading}\n")), "{target}");
        }
    }
    for group in Group::ALL {
        assert!(page("README").contains(&format!("({}.md)", group.name())));
    }
}

#[test]
fn recorder_records_every_tool_that_an_item_runs() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let recorder = fs::read_to_string(folder.join("fixtures/record.sh")).unwrap();
    let mut asked = 0;
    for file in fs::read_dir(folder.join("src/items")).unwrap().flatten() {
        let code = fs::read_to_string(file.path()).unwrap();
        for call in code.split(".ask(&[\"").skip(1) {
            let tool = call.split('"').next().unwrap();
            assert!(
                recorder.contains(&format!("record_tool {tool} ")),
                "record.sh does not record {tool}"
            );
            asked += 1;
        }
    }
    assert!(asked > 5, "only {asked} calls were found");
}

#[test]
fn nine_steps_try_receive_offload_only_with_for_json() {
    // The item switches receive offload off only with `--for json`.
    let tries: Vec<String> = page("nine-steps")
        .lines()
        .filter(|line| line.starts_with("tidegate tune prove") && line.contains("last-offloads"))
        .map(str::to_owned)
        .collect();
    assert!(!tries.is_empty());
    assert!(tries.iter().all(|line| line.contains("--for json")), "{tries:?}");
}

#[test]
fn ids_are_unique_and_lowercase() {
    for (position, item) in items::ALL.iter().enumerate() {
        assert!(
            item.id.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-'),
            "{}",
            item.id
        );
        assert!(
            items::ALL.iter().skip(position + 1).all(|other| other.id != item.id),
            "{}",
            item.id
        );
    }
}
