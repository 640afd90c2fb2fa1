//! The options for reading raw images, as `dataset.json` and models store them. The nodata value has a key of its own.

use loaders::{Bands, Reading};

use super::{Layout, Page, RawOptions, layout, page};

/// The only value of `--nan`.
const ZERO: &str = "zero";

impl RawOptions {
    /// Returns the options to store. `None` if all are the default.
    pub(crate) fn reading(&self) -> Option<Reading> {
        let page = match self.page {
            first if first == Page::default() => String::new(),
            Page::Number(number) => number.to_string(),
            Page::All => "all".into(),
        };
        let layout = self.layout.map_or("", |layout| match layout {
            Layout::Interleaved => "NHWC",
            Layout::Planes => "NCHW",
        });
        let nan = if self.nan_as_zero { ZERO } else { "" };
        let images = self.images.clone().unwrap_or_default();
        let reading = Reading { bands: self.bands.clone(), page, layout: layout.into(), images, nan: nan.into() };
        Some(reading).filter(|reading| *reading != Reading::default())
    }

    /// Returns the options that a data set was converted with.
    ///
    /// # Errors
    ///
    /// Returns which stored option is wrong.
    pub fn of_dataset(bands: &Bands) -> Result<Self, String> {
        let Reading { bands: kept, page: number, layout: axes, images, nan } =
            bands.reading.clone().unwrap_or_default();
        let given = |text: &String| !text.is_empty();
        let wrong = |key: &str, problem: String| format!("`reading.{key}`: {problem}");
        if kept.contains(&0) {
            return Err(wrong("bands", "expected band numbers from 1, got 0".into()));
        }
        if !["", ZERO].contains(&nan.as_str()) {
            return Err(wrong("nan", format!("expected \"{ZERO}\", got \"{}\"", nan.escape_debug())));
        }
        let page = Some(number).filter(given).map(|text| page(&text)).transpose();
        let layout = Some(axes).filter(given).map(|text| layout(&text)).transpose();
        Ok(Self {
            bands: kept,
            nodata: bands.nodata,
            nan_as_zero: nan == ZERO,
            page: page.map_err(|problem| wrong("page", problem))?.unwrap_or_default(),
            layout: layout.map_err(|problem| wrong("layout", problem))?,
            images: Some(images).filter(given),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_options_come_back() {
        let options = RawOptions {
            bands: vec![4, 3, 2],
            nodata: Some(-9999.0),
            nan_as_zero: true,
            page: Page::All,
            layout: Some(Layout::Planes),
            images: Some("/scans".into()),
        };
        let stored = Bands { reading: options.reading(), nodata: options.nodata, ..Bands::default() };
        assert_eq!(RawOptions::of_dataset(&stored), Ok(options));
        assert_eq!(RawOptions::default().reading(), None);
        assert_eq!(RawOptions::of_dataset(&Bands::default()), Ok(RawOptions::default()));
        for (wrong, key) in [
            (Reading { bands: vec![0], ..Reading::default() }, "reading.bands"),
            (Reading { page: "0".into(), ..Reading::default() }, "reading.page"),
            (Reading { layout: "WHC".into(), ..Reading::default() }, "reading.layout"),
            (Reading { nan: "mean".into(), ..Reading::default() }, "reading.nan"),
        ] {
            let error = RawOptions::of_dataset(&Bands { reading: Some(wrong), ..Bands::default() }).unwrap_err();
            assert!(error.contains(key), "{error}");
        }
    }
}
