//! `tide.json`: JSON texts and values of every size.
//! In: values, texts. Out: texts, values.

mod harness;

use harness::{App, TIMED};
use tidegate_base::Span;
use tidegate_lua::{Bounds, Budget};

/// Runs `body`, which returns a string.
fn run(body: &str) -> String {
    let text = format!(
        "return {{ on_request = function(_, response) response:finish(tostring((function() {body} end)())) end }}"
    );
    let (_, response) = App::load(&text, &TIMED).get("/");
    response.expect("it answers").1
}

/// Bounds that let long texts be written on a busy machine.
fn patient() -> Bounds {
    Bounds { budget: Budget::Time(Span::from_secs(60)), memory_bytes_max: 64 << 20, ..TIMED }
}

/// As `run`, with a time budget of a minute.
fn run_patiently(body: &str) -> String {
    let text = format!(
        "return {{ on_request = function(_, response) response:finish(tostring((function() {body} end)())) end }}"
    );
    let (_, response) = App::load(&text, &patient()).get("/");
    response.expect("it answers").1
}

#[test]
fn long_strings_count_for_the_limit_of_a_text() {
    let refused =
        "local value, err = tide.json.encode({ ('\\0'):rep(3e6), ('\\0'):rep(1e5) }) return err";
    assert_eq!(run_patiently(refused), "the JSON text would exceed 16 MiB");
    let body = "local ok, err = pcall(response.json, response, ('\\0'):rep(3e6)) response:finish(tostring(err))";
    let text = format!("return {{ on_request = function(_, response) {body} end }}");
    let (_, response) = App::load(&text, &patient()).get("/");
    assert!(response.expect("it answers").1.contains("16 MiB"));
}

#[test]
fn decoded_arrays_are_marked_as_arrays() {
    let body = "local list = tide.json.decode('[1]')
        return tostring(tide.json.array(list) == list) .. tide.json.encode(tide.json.array(tide.json.decode('[]')))";
    assert_eq!(run(body), "true[]");
}

#[test]
fn arrays_of_any_length_are_read_and_written() {
    let body = "for length = 0, 100 do
            local values = tide.json.array()
            for at = 1, length do values[at] = at * 10 end
            local text = tide.json.encode(values)
            local read = tide.json.decode(text)
            assert(#read == length and read[length + 1] == nil, length)
            for at = 1, length do assert(read[at] == at * 10, length) end
            assert(tide.json.encode(read) == text, length)
        end
        return 'all'";
    assert_eq!(run(body), "all");
}

#[test]
fn objects_of_any_size_are_read_and_written() {
    let body = "for size = 0, 100 do
            local members = {}
            for at = 1, size do members[at] = ('\"key%d\" : {\"at\":[%d]}'):format(at, at) end
            local read = tide.json.decode('{' .. table.concat(members, ' , ') .. '}')
            local count = 0
            for name, value in pairs(read) do
                assert(name == 'key' .. value.at[1], name)
                count = count + 1
            end
            assert(count == size, size)
            read = tide.json.decode(tide.json.encode(read))
            for at = 1, size do assert(read['key' .. at].at[1] == at, at) end
        end
        return 'all'";
    assert_eq!(run(body), "all");
}

#[test]
fn last_of_several_members_with_the_same_name_counts() {
    let body = "for size = 1, 40 do
            for first = 1, size do
                local members = {}
                for at = 1, size do members[at] = ('\"key%d\":%d'):format(at, at) end
                members[#members + 1] = ('\"key%d\":\"last\"'):format(first)
                local read = tide.json.decode('{' .. table.concat(members, ',') .. '}')
                assert(read['key' .. first] == 'last', size)
            end
        end
        return 'all'";
    assert_eq!(run(body), "all");
}

#[test]
fn deep_texts_with_many_elements_on_each_level_are_read() {
    // Elements and names that wait for their table are on the stack.
    let body = "local before = ('1,'):rep(31)
        local text = ('[' .. before):rep(100) .. '2' .. (']'):rep(100)
        local read = tide.json.decode(text)
        assert(tide.json.encode(read) == text)
        local members = {}
        for at = 1, 15 do members[at] = ('\"k%d\":0,'):format(at) end
        text = ('{' .. table.concat(members) .. '\"last\":'):rep(100) .. '2' .. ('}'):rep(100)
        read = tide.json.decode(text)
        for level = 1, 100 do
            assert(read.k15 == 0, level)
            read = read.last
        end
        return read";
    assert_eq!(run(body), "2");
}

#[test]
fn strings_are_escaped_wherever_the_byte_is() {
    let body = r#"for _, special in ipairs { '"', '\\', '\n', '\0', '\31', '\127', 'é', '' } do
            for before = 0, 40 do
                for after = 0, 40, 8 do
                    local text = ('a'):rep(before) .. special .. ('b'):rep(after)
                    local json = tide.json.encode(text)
                    assert(not json:sub(2, -2):find('[%c]') and tide.json.decode(json) == text, json)
                    local _, err = tide.json.decode(('"%s\n%s"'):format(('a'):rep(before), ('b'):rep(after)))
                    assert(err:find('control character', 1, true) and err:find('byte ' .. before + 2 .. ')', 1, true), err)
                end
            end
        end
        return 'all'"#;
    assert_eq!(run(body), "all");
}

#[test]
fn commas_and_ends_are_required_in_long_texts_too() {
    for count in [1, 15, 16, 17, 31, 32, 33, 100] {
        let body = format!(
            "local values, members = ('1,'):rep({count}), {{}}
            for at = 1, {count} do members[at] = ('\"k%d\":1'):format(at) end
            members = table.concat(members, ',')
            for _, text in ipairs {{ '[' .. values .. ']', '[' .. values .. '1', '[' .. values .. '1 1]', '[' .. values .. '1}}',
                '{{' .. members .. ',}}', '{{' .. members, '{{' .. members .. ' \"x\":1}}', '{{' .. members .. ']' }} do
                assert(tide.json.decode(text) == nil, text)
            end
            return 'all'"
        );
        assert_eq!(run(&body), "all", "{count}");
    }
}

#[test]
fn strings_that_are_not_utf8_are_refused() {
    let body = "for _, bad in ipairs { '\\255', 'abc\\195', { ['\\128'] = 1 }, { 'x', '\\237\\160\\128' } } do
            local text, err = tide.json.encode(bad)
            assert(text == nil and err == 'a string that is not UTF-8 cannot be written as JSON', err)
        end
        return tide.json.encode('\\195\\164')";
    assert_eq!(run(body), "\"ä\"");
}

#[test]
fn key_that_would_occur_twice_is_refused() {
    let body = "for _, bad in ipairs { { ['1'] = 1, [1] = 2, x = 3 }, { ['1.5'] = 1, [1.5] = 2 }, { a = { [-3] = 1, ['-3'] = 2 } } } do
            local text, err = tide.json.encode(bad)
            assert(text == nil and err:find('a number and an equal string as keys', 1, true), err)
        end
        return tide.json.encode { [7] = 1 } .. tide.json.encode { [1] = 1, ['1.0'] = 2 }:len()";
    assert_eq!(run(body), "{\"7\":1}15");
}
